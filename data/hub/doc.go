// Package hub fetches models and datasets from the Hugging Face hub by plain
// HTTPS, when an hf:// URL asks for one.
//
// It promises:
//
//   - Nothing is fetched except what a [Ref] names, and nothing at all in offline mode.
//   - A file appears in the cache complete, with the size and the hash that the hub
//     states (SHA-256, or git's SHA-1 of small files), or not at all.
//   - A download that breaks off continues where it broke off, in this process or a
//     later one. Server errors are retried with growing, jittered pauses, and as late
//     as the server asks for; permanent errors are not.
//   - The token goes only to the hub, never to a host that it redirects to,
//     and never over plain HTTP if the hub was reached by HTTPS.
//   - No name from a server leads out of the cache.
//   - The cache has the layout of the huggingface_hub library: each finds what the
//     other has fetched.
//
// The environment variables are huggingface_hub's, too: HF_HOME, HF_HUB_CACHE, HF_TOKEN,
// HF_TOKEN_PATH, HF_ENDPOINT, HF_HUB_OFFLINE, XDG_CACHE_HOME.
//
// Sources: https://huggingface.co/docs/hub/api,
// https://huggingface.co/docs/hub/rate-limits and
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache.
package hub
