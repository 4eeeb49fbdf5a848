package web

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
)

// browser opens a tab of Chromium, or skips the test if there is none.
func browser(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		if os.Getenv("SNUG_REQUIRE_BROWSER") == "1" {
			t.Fatal("SNUG_REQUIRE_BROWSER is 1, and there is no Chromium: install the package chromium")
		}
		t.Skip("no Chromium here: the page is not tested in a browser")
	}
	opt := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WSURLReadTimeout(90*time.Second), chromedp.WindowSize(1280, 900))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opt...)
	t.Cleanup(cancel)
	// Messages from the browser that this library does not know yet are not our errors.
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// startAt shows runs at an address until stop is called.
func startAt(t *testing.T, address string, runs ...string) (at string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := New(Options{Runs: runs, Interval: 100 * time.Millisecond})
	go func() { done <- s.Run(ctx, l) }()
	ended := false
	stop = func() {
		cancel()
		if !ended {
			ended = true
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func do(t *testing.T, ctx context.Context, what ...chromedp.Action) { //nolint:revive // context-as-argument: the test comes first
	t.Helper()
	if err := chromedp.Run(ctx, what...); err != nil {
		t.Fatal(err)
	}
}

// await waits until an expression is true in the page.
func await(t *testing.T, ctx context.Context, expression string) { //nolint:revive // context-as-argument: likewise
	t.Helper()
	var last any
	for range 600 {
		do(t, ctx, chromedp.Evaluate("(() => { try { return "+expression+" } catch (e) { return String(e) } })()", &last))
		if last == true {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	var page string
	do(t, ctx, chromedp.Evaluate("document.body.innerText", &page))
	t.Fatalf("%s: %v; the page:\n%.2000s", expression, last, page)
}

// row returns the expression for a line of the tables that mirror the curves.
func row(run, series string) string {
	return fmt.Sprintf("[...document.querySelectorAll('table[data-panel] tr')].find((r) => r.dataset.run === %q && r.dataset.series === %q).dataset", run, series)
}

// A page follows a run while it grows, and a run that appears later; it continues after a
// restart of the server, with every point once. Names and messages of runs are plain
// text.
func TestBrowserLive(t *testing.T) {
	ctx := browser(t)
	name := "<img src=x onerror=hacked=1> '\"&amp;"
	f := newFolder(t, name)
	f.updates(1, 3)
	f.say("<script>hacked=1</script><b>bold</b>")
	f.write(monitor.TextFile, "</pre><img src=x onerror=hacked=1>")
	late := &folder{t, filepath.Join(t.TempDir(), "late")}
	at, stop := startAt(t, "127.0.0.1:0", f.dir, late.dir)
	do(t, ctx, chromedp.Navigate("http://"+at))
	await(t, ctx, row(name, "loss")+".at === '3'")
	await(t, ctx, "document.querySelectorAll('.plot[data-panel=loss] canvas').length === 1")

	f.updates(4, 5)
	await(t, ctx, row(name, "loss")+".at === '5' && "+row(name, "loss")+".last === '2'")
	late.about("r2", "0.5")
	late.updates(1, 2)
	await(t, ctx, row("late", "loss")+".at === '2'")
	await(t, ctx, "document.querySelector('#differences tr[data-key=\"training.learning_rate\"]').innerText.includes('0.5')")
	await(t, ctx, "!document.querySelector('#differences tr[data-key=\"training.seed\"]')")
	do(t, ctx, chromedp.Click("#runs .run:nth-child(2) input"))
	await(t, ctx, "![...document.querySelectorAll('table[data-panel] tr')].some((r) => r.dataset.run === 'late')")

	stop()
	await(t, ctx, "document.getElementById('connection').textContent === 'reconnecting'")
	f.updates(6, 8)
	_, stop = startAt(t, at, f.dir, late.dir)
	await(t, ctx, row(name, "loss")+".at === '8' && "+row(name, "loss")+".points === '8' && "+row(name, "loss")+".drawn === '8'")

	stop()
	f.replace(train.MetricsFile, lines(1, 4, 0.7)) // resumed from an earlier update
	startAt(t, at, f.dir, late.dir)
	await(t, ctx, row(name, "loss")+".at === '4' && "+row(name, "loss")+".drawn === '4'")

	await(t, ctx, "document.querySelector('#log-lines').innerText.includes('<script>hacked=1</script><b>bold</b>')")
	await(t, ctx, "document.querySelector('#text pre').textContent === '</pre><img src=x onerror=hacked=1>'")
	await(t, ctx, "typeof hacked === 'undefined' && document.querySelectorAll('main img, main script, main b b').length === 0")
}

// Selecting a part of a curve gets its points from the server.
func TestBrowserZoom(t *testing.T) {
	ctx := browser(t)
	f := newFolder(t, "run")
	f.updates(1, 20000)
	at, _ := startAt(t, "127.0.0.1:0", f.dir)
	do(t, ctx, chromedp.Navigate("http://"+at))
	await(t, ctx, row("run", "loss")+".points === '20000' && Number("+row("run", "loss")+".drawn) < 6000")
	// A drag over a hundredth of the plot.
	var box struct{ X, Y, Width, Height float64 }
	do(t, ctx, chromedp.Evaluate("scrollTo(0, 0); document.querySelector('.plot[data-panel=loss] .u-over').getBoundingClientRect().toJSON()", &box))
	at0, at1, y := box.X+0.5*box.Width, box.X+0.51*box.Width, box.Y+box.Height/2
	do(t, ctx,
		chromedp.MouseEvent(input.MouseMoved, at0, y), chromedp.MouseEvent(input.MousePressed, at0, y, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.MouseMoved, at1, y, chromedp.ButtonLeft), chromedp.Sleep(100*time.Millisecond),
		chromedp.MouseEvent(input.MouseReleased, at1, y, chromedp.ButtonLeft),
	)
	await(t, ctx, "document.documentElement.dataset.zoomed !== undefined && !document.getElementById('whole').hidden")
	await(t, ctx, "(() => { const d = "+row("run", "loss")+"; return Number(d.drawn) === Number(d.at) - Number(d.first) + 1 && Number(d.drawn) < 400 && Number(d.first) > 9000; })()")
	do(t, ctx, chromedp.Click("#whole"))
	await(t, ctx, row("run", "loss")+".at === '20000' && document.getElementById('whole').hidden")
}

// On a touch screen two fingers zoom, one moves the zoomed view, and a double tap goes
// back to the whole run.
func TestBrowserTouch(t *testing.T) {
	ctx := browser(t)
	f := newFolder(t, "run")
	f.updates(1, 20000)
	at, _ := startAt(t, "127.0.0.1:0", f.dir)
	do(t, ctx, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch), chromedp.Navigate("http://"+at))
	await(t, ctx, row("run", "loss")+".points === '20000'")
	var box struct{ X, Y, Width, Height float64 }
	do(t, ctx, chromedp.Evaluate("document.querySelector('.plot[data-panel=loss] .u-over').getBoundingClientRect().toJSON()", &box))
	touch := func(kind input.TouchType, at ...float64) {
		t.Helper()
		points := []*input.TouchPoint{}
		for i, x := range at {
			points = append(points, &input.TouchPoint{X: box.X + x*box.Width, Y: box.Y + box.Height/2, ID: float64(i + 1)})
		}
		do(t, ctx, input.DispatchTouchEvent(kind, points))
	}
	touch(input.TouchStart, 0.45, 0.55)
	for _, x := range []float64{0.4, 0.3, 0.2, 0.1} {
		touch(input.TouchMove, x, 1-x)
	}
	touch(input.TouchEnd)
	// 0.45 to 0.55 of the run is now 0.1 to 0.9 of the panel: an eighth is visible, from
	// 0.4375.
	await(t, ctx, "document.documentElement.dataset.zoomed !== undefined && !document.getElementById('whole').hidden")
	await(t, ctx, "Number("+row("run", "loss")+".first) > 8500 && Number("+row("run", "loss")+".at) < 11500")
	var before float64
	do(t, ctx, chromedp.Evaluate("Number("+row("run", "loss")+".first)", &before))
	touch(input.TouchStart, 0.8)
	for _, x := range []float64{0.7, 0.5, 0.3} {
		touch(input.TouchMove, x)
	}
	touch(input.TouchEnd)
	await(t, ctx, fmt.Sprintf("Number(%s.first) > %v", row("run", "loss"), before+1000)) // half of what is seen is 1250
	for range 2 {
		touch(input.TouchStart, 0.5)
		touch(input.TouchEnd)
	}
	await(t, ctx, row("run", "loss")+".at === '20000' && document.getElementById('whole').hidden")
}

// Runs with the same hostile name, one with extreme numbers, one whose folder disappears:
// the page shows what it can, as text.
func TestBrowserHostile(t *testing.T) {
	ctx := browser(t)
	const name = "a\x1b[31m\u202eb<script>hacked=1<"
	const shown = "ab<script>hacked=1<"
	f, g := newFolder(t, name), newFolder(t, name)
	for i, loss := range []string{"1e308", "-1e308", `"NaN"`, "1e-308", "5e-324", "1e308"} {
		f.write(train.MetricsFile, fmt.Sprintf(`{"event":"update","update":%d,"loss":%s,"grad_norm":1e308,"learning_rate":1e-320,"seconds":1e17,"rate":1e17}`+"\n", i+1, loss))
	}
	f.write(train.MetricsFile, `{"event":"update","update":-7,"loss":1}`+"\n")
	g.updates(1, 5)
	at, _ := startAt(t, "127.0.0.1:0", f.dir, g.dir)
	do(t, ctx, chromedp.Navigate("http://"+at))
	card := func(dir string) string {
		return fmt.Sprintf("[...document.querySelectorAll('#runs .run')].find((r) => r.dataset.run === %q)", monitor.Printable(dir))
	}
	await(t, ctx, card(f.dir)+".innerText.includes('update 6') && "+card(g.dir)+".innerText.includes('update 5')")
	await(t, ctx, "document.querySelector('#alerts').innerText.includes('metrics.jsonl: line 7 is damaged')")
	do(t, ctx, chromedp.Click("#log"), chromedp.SetValue("#smooth", "0.9"))
	await(t, ctx, "document.querySelectorAll('.plot canvas').length > 2")
	if err := os.RemoveAll(g.dir); err != nil {
		t.Fatal(err)
	}
	await(t, ctx, card(g.dir)+".dataset.state === 'gone' && "+card(g.dir)+".innerText.includes('no such file')")
	g.updates(1, 9)
	await(t, ctx, card(g.dir)+".dataset.state !== 'gone' && "+card(g.dir)+".innerText.includes('update 9')")
	await(t, ctx, "typeof hacked === 'undefined' && document.querySelectorAll('main script').length === 0")
	if monitor.Printable(name) != shown {
		t.Errorf("%q", monitor.Printable(name))
	}
}

// A run of a million updates is shown at once.
func TestBrowserMillion(t *testing.T) {
	if testing.Short() {
		t.Skip("a file of 130 MB: not with -short")
	}
	ctx := browser(t)
	const n = 1_000_000
	f := newFolder(t, "million")
	file, err := os.Create(filepath.Join(f.dir, train.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(file, 1<<20)
	for u := 1; u <= n; u++ {
		fmt.Fprintf(w, `{"event":"update","update":%d,"loss":%.4f,"learning_rate":0.001,"grad_norm":1.5,"seconds":0.5,"rate":200,"time":%.1f}`+"\n", u, 1+float64(u%97)/100, float64(start.Unix())-float64(n-u)/10)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	at, _ := startAt(t, "127.0.0.1:0", f.dir)
	do(t, ctx, chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+at))
	await(t, ctx, row("million", "loss")+".points === '1000000' && document.documentElement.dataset.drawn !== undefined")
	var ms int
	do(t, ctx, chromedp.Evaluate("Number(document.documentElement.dataset.drawn)", &ms))
	t.Logf("1,000,000 updates, four curves: drawn %d ms after the request", ms)
	if ms > 20_000 {
		t.Errorf("it took %d ms", ms)
	}
}
