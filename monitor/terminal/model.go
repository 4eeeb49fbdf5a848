package terminal

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/snug-ml/snug/monitor"
)

// Options say how runs are shown.
type Options struct {
	Looks
	// Look returns what is known now, for a view of that many points; nil: frames come
	// from elsewhere. news is false if nothing changed.
	Look     func(v monitor.View) Frame
	Interval time.Duration
	// Once leaves out what only a live screen needs.
	Once bool
	// Leave says what q does; empty: "quit".
	Leave string
}

// Frame is what is known at one time.
type Frame struct {
	Now  time.Time
	Runs []*monitor.Snapshot
	News bool
	Err  string // why nothing could be read

	extra bool // a key requested it, and the next look is on its way
}

// Model is the state of the screen.
type Model struct {
	opts          Options
	width, height int
	frame         Frame
	shown         []*shown

	run      int  // shown in detail
	chosen   bool // by the user; otherwise it is the running one
	panel    int
	full     bool // only the panel
	log      bool
	smooth   int // index in smoothings
	zoom     int // the last 1/2^zoom of the run
	paused   bool
	help     bool
	messages bool
	scroll   int

	version int // of the screen's content
	drawn   *drawn
}

// drawn caches the screen as last drawn: most looks bring nothing new.
type drawn struct {
	version int
	text    string
}

// smoothings are the weights of averages.
var smoothings = []float64{0, 0.9, 0.98}

// shown is a run, or a phase of one.
type shown struct {
	*monitor.Snapshot
	label string
	group string // curves of a group are overlaid
	index int
}

// New returns the screen before anything is known.
func New(o Options) Model {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	return Model{opts: o, width: 80, height: 24, version: 1, drawn: &drawn{}}
}

// Init implements tea.Model.
func (m Model) Init() tea.Cmd { return m.look(false) }

// tick says that it is time to look again.
type tick struct{}

// look reads what is new, outside the screen's event loop.
func (m Model) look(extra bool) tea.Cmd {
	if m.opts.Look == nil {
		return nil
	}
	view, look := m.view(), m.opts.Look
	return func() tea.Msg {
		f := look(view)
		f.extra = extra
		return f
	}
}

// view returns what the screen needs to know.
func (m Model) view() monitor.View {
	v := monitor.View{Width: max(m.width, 20), Lines: max(m.height, 10)}
	if m.zoom > 0 {
		last := int64(0)
		for _, s := range m.shown {
			last = max(last, s.Update)
		}
		v.From = last - last>>m.zoom
	}
	return v
}

// Update implements tea.Model.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.version++
		m.width, m.height = msg.Width, msg.Height
		return m, m.look(true)
	case Frame:
		if msg.News && !m.paused {
			m.version++
			m.take(msg)
		}
		if msg.extra {
			return m, nil
		}
		return m, tea.Tick(m.opts.Interval, func(time.Time) tea.Msg { return tick{} })
	case tick:
		return m, m.look(false)
	case tea.KeyPressMsg:
		m.version++
		return m.key(msg.String())
	}
	return m, nil
}

// take shows a frame.
func (m *Model) take(f Frame) {
	m.frame = f
	m.shown = nil
	names := map[string]int{}
	for _, s := range f.Runs {
		names[s.Name]++
	}
	add := func(s *monitor.Snapshot, label, group string) {
		m.shown = append(m.shown, &shown{s, label, group, len(m.shown)})
	}
	for _, s := range f.Runs {
		label := s.Name
		if names[s.Name] > 1 {
			label = s.Path
		}
		if len(s.Phases) == 0 {
			add(s, label, "")
		}
		for _, p := range s.Phases {
			add(p, label+"/"+p.Name, p.Name)
		}
	}
	if m.run = min(m.run, max(0, len(m.shown)-1)); !m.chosen {
		for i, s := range m.shown {
			if m.run = i; s.State != monitor.Done {
				break // the first running one
			}
		}
		if len(f.Runs) > 1 {
			m.run = 0
		}
	}
}

// key carries out what a key stands for.
func (m Model) key(k string) (tea.Model, tea.Cmd) {
	switch k {
	case "ctrl+c", "q":
		if k == "q" && (m.help || m.messages || m.full) {
			m.help, m.messages, m.full = false, false, false
			return m, nil
		}
		return m, tea.Quit
	case "esc":
		m.help, m.messages, m.full = false, false, false
	case "?", "h", "f1":
		m.help = !m.help
	case "r", "ctrl+l":
		return m, tea.Batch(tea.ClearScreen, m.look(true))
	case "space":
		m.paused = !m.paused
		if !m.paused {
			return m, m.look(true)
		}
	case "l":
		m.log = !m.log
	case "s":
		m.smooth = (m.smooth + 1) % len(smoothings)
	case "m":
		m.messages, m.scroll = !m.messages, 0
	case "enter", "f":
		m.full = !m.full
	case "+", "=":
		m.zoom = min(m.zoom+1, 12)
		return m, m.look(true)
	case "-", "_":
		m.zoom = max(m.zoom-1, 0)
		return m, m.look(true)
	case "0":
		m.zoom = 0
		return m, m.look(true)
	case "tab", "down", "j":
		m.turn(1)
	case "shift+tab", "up", "k":
		m.turn(-1)
	case "right", "]", "n":
		m.choose(m.run + 1)
	case "left", "[", "p":
		m.choose(m.run - 1)
	case "1", "2", "3", "4", "5", "6", "7", "8", "9":
		if i := int(k[0] - '1'); i < len(m.shown) {
			m.choose(i)
		}
	}
	return m, nil
}

// turn moves to another panel, or through the messages.
func (m *Model) turn(by int) {
	if m.messages {
		m.scroll = max(0, m.scroll+by)
		return
	}
	if n := len(m.plots()); n > 0 {
		m.panel = (m.panel + by + n) % n
	}
}

func (m *Model) choose(i int) {
	if n := len(m.shown); n > 0 {
		m.run, m.chosen = (i+n)%n, true
	}
}

// View implements tea.Model.
func (m Model) View() tea.View {
	if m.drawn.version != m.version {
		*m.drawn = drawn{m.version, m.screen().String()}
	}
	v := tea.NewView(m.drawn.text)
	v.AltScreen = true
	return v
}

// Once returns the screen of a frame, without what only a live one needs and without
// empty lines at the end.
func Once(o Options, width, height int, f Frame) string {
	o.Once = true
	m := New(o)
	m.width, m.height = width, height
	m.take(f)
	return strings.TrimRight(m.screen().String(), "\n")
}
