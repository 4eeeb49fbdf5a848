package agiformer

// Gallery writes a folder of captions, for tests of the command line.
var Gallery = gallery
