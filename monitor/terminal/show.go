package terminal

import (
	"context"
	"os"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
)

// framesPerSecond bounds how often the screen is updated.
const framesPerSecond = 5

// Show shows the model on a terminal until its user leaves or the context ends. Both
// files must be terminals. interrupted is true if ctrl+c was typed.
func Show(ctx context.Context, in, out *os.File, o Options) (interrupted bool, err error) {
	profile := colorprofile.ANSI
	if !o.Color {
		profile = colorprofile.ASCII
	}
	m := &last{}
	p := tea.NewProgram(New(o), tea.WithInput(in), tea.WithOutput(out), tea.WithFPS(framesPerSecond),
		tea.WithColorProfile(profile), tea.WithoutSignalHandler(), tea.WithFilter(m.see))
	defer context.AfterFunc(ctx, p.Quit)()
	_, err = p.Run()
	return m.interrupted, err
}

// last records how the screen was left.
type last struct{ interrupted bool }

func (l *last) see(_ tea.Model, msg tea.Msg) tea.Msg {
	if k, ok := msg.(tea.KeyPressMsg); ok && k.String() == "ctrl+c" {
		l.interrupted = true
	}
	return msg
}
