package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// An operator looks at the page in a browser, through lifeboat web: a node leaves with little time, the page counts down, says what
// will stay behind, and what was lost; nothing that the fleet says becomes markup; a coordinator that goes and comes back is told.
func TestPageInABrowser(t *testing.T) {
	f := newFleet(t)
	a := f.agent("host-a", "drain: {max_bytes_per_second: 200000}")
	f.agent("host-b")
	a.fill(60, 6_000_000)
	f.up()
	url, address := f.web(f.http)
	if r, err := http.Get("http://" + address + "/nodes"); err != nil || r.StatusCode != http.StatusForbidden {
		t.Errorf("without the key: got %v (%v)", r, err)
	}

	b := newBrowser(t, url)
	b.until(`document.querySelector("#health").textContent === "live"`)
	b.until(`document.querySelectorAll("#nodes tr").length === 2`)
	b.until(`[...document.querySelectorAll("#events li")].filter((e) => e.innerText.includes("NodeRegistered")).length === 2`)
	if at := b.says("location.href"); at != "http://"+address+"/" {
		t.Errorf("the key stays in the address: %s", at)
	}

	b.says(`document.querySelector("#states button").focus(); getSelection().selectAllChildren(document.querySelector("#nodes th")); ""`)
	b.says(`window.beat = document.querySelector("#nodes tr").lastChild.innerText; ""`)
	b.until(`document.querySelector("#nodes tr").lastChild.innerText !== window.beat`)
	if on, marked := b.says(`document.activeElement.textContent`), b.says(`getSelection().toString()`); on != "2 ACTIVE" || marked != "host-a" {
		t.Errorf("once the nodes are drawn anew the keyboard is on %q and %q is marked", on, marked)
	}

	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	if lines := b.says(`Object.assign(nodes[0], {state: "DECOMMISSIONING", sub_state: "MIGRATING"}); drawNodes();
		const word = document.createRange(), told = document.querySelector("#nodes td").firstChild; word.setStart(told, 0); word.setEnd(told, nodes[0].state.length); word.getClientRects().length`); lines != "1" {
		t.Errorf("on a telephone, DECOMMISSIONING is broken over %s lines", lines)
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1300, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	if beyond := b.says(`Object.assign(nodes[0], {name: "ip-10-120-113-117.eu-central-1.compute.int", zone: "eu-central-1a", pool: "r5.4xlarge-spot", state: "DECOMMISSIONING", sub_state: "WAIT_WORKLOAD", suspect_seconds: 3, held_blocks: 1203040, held_bytes: 2 ** 38, room_bytes: 5 * 2 ** 40, vault_room_bytes: 3 * 2 ** 30});
		nodes[0].disks = [{path: "/mnt/nvme0n1/lifeboat/vault", health: "HIGH_USAGE", unwell: true}]; drawNodes(); const s = document.querySelector(".scroll"); s.scrollWidth - s.clientWidth`); beyond != "0" {
		t.Errorf("of a node of whom there is much to say, %s pixels of its row are out of sight", beyond)
	}
	b.until(`document.querySelector("#nodes tr").innerText.startsWith("host-a")`) // once it is drawn from the coordinator's next answer

	const resumed = `card(Object.assign({}, nodes[0], {drain: {phase: "scanning", blocks: {total: 64, moved: 64, lost: 0}, bytes_total: 9, bytes_moved: 9, bytes_per_second: 0, peers: []}}))`
	if at := b.says(resumed + `.querySelector("progress").position`); at != "-1" { // HTML: indeterminate
		t.Errorf("the bar of a drain that a restart interrupted and that looks for the rest is at %s", at)
	}

	const evil = `<img src=x onerror="document.title='taken'">`
	f.verb("decommission", "host-a", "--timeout", "12s", "--reason", evil).exits(0)
	b.until(`/^[0-9.]+s left$/.test(document.querySelector("article .left")?.textContent)`)
	b.until(`document.querySelector("article progress")?.value > 0`)
	b.until(`/at this speed .* stay behind/.test(document.querySelector("article").innerText)`)
	if text := b.says(`document.querySelector("article").innerText`); !strings.Contains(text, evil) || b.says("document.title") != "Lifeboat" || b.says(`document.querySelectorAll("img").length`) != "0" {
		t.Errorf("what an operator said became markup: %s", text)
	}
	b.until(`/deadline=[-0-9]+T[0-9:]+Z/.test(document.querySelector("#events").innerText)`)
	b.says(`document.querySelector("#states li[data-state=DECOMMISSIONING] button").click(); ""`)
	b.until(`document.querySelector("#nodes-count").textContent === "1 of 2"`)
	b.until(`document.querySelector("#leaving-part").hidden`)
	b.until(`document.querySelector("#nodes-count").textContent === "0 of 2"`)
	b.says(`document.querySelector("#states li[data-state=DECOMMISSIONING] button").click(); ""`) // the button that shows only leaving nodes also shows all again
	b.until(`document.querySelector("#nodes-count").textContent === "2" && !document.querySelector("#states li[data-state=DECOMMISSIONING]")`)
	b.until(`/DECOMMISSIONED, \d+ blocks lost/.test(document.querySelector("#nodes tr").innerText)`)
	b.says(`document.querySelector("#find").value = "host-b"; document.querySelector("#find").dispatchEvent(new Event("input")); ""`)
	b.until(`document.querySelectorAll("#nodes tr").length === 1 && document.querySelector("#nodes-count").textContent === "1 of 2"`)
	if len(b.trouble) > 0 {
		t.Errorf("the browser complains of the page: %v", b.trouble)
	}

	f.coordinator.kill()
	b.until(`document.querySelector("#health").textContent.startsWith("the coordinator does not answer")`)
	b.until(`/is (?:[5-9]|1\d)[.s]/.test(document.querySelector("#health").textContent)`) // 5 s or more: the page has asked for events in vain
	f.coordinator.start()
	b.until(`document.querySelector("#health").textContent === "live"`)
	f.verb("deactivate", "host-b", "--reason", "after the outage").exits(0)
	b.until(`document.querySelector("#events").innerText.includes("after the outage")`)
}

// web runs lifeboat web in front of coordinators' pages. It returns what it prints, and where it listens.
func (f *fleet) web(pages string) (url, address string) {
	f.t.Helper()
	address = freeAddress(f.t)
	web := &daemon{t: f.t, name: "web", log: f.dir + "/web.log", args: []string{"web", "--listen", address, "--coordinator", f.grpc, "--pages", pages, "--tls-dir", f.tls}}
	web.start()
	f.t.Cleanup(web.kill)
	f.until(func() error {
		for line := range strings.Lines(web.logged()) {
			if strings.HasPrefix(line, "http://") {
				url = strings.TrimSpace(line)
				return nil
			}
		}
		return fmt.Errorf("web prints %s", web.logged())
	})
	return url, address
}

// The leader stands still, and its kernel accepts connections for it as before. The page goes on with the next leader, in time for an
// operator who watches a node leave: what the nodes do, and what happens.
func TestPageWhereTheLeaderStandsStill(t *testing.T) {
	v := newTrio(t)
	v.agent("host-a", "drain: {max_bytes_per_second: 20000}").fill(6, 6_000_000)
	v.agent("host-b")
	v.up()
	leader := v.leader()
	at := v.at(leader.name)
	url, _ := v.web(strings.Join([]string{v.https[at], v.https[(at+1)%3], v.https[(at+2)%3]}, ","))
	b := newBrowser(t, url)
	b.until(`document.querySelector("#health").textContent === "live" && document.querySelectorAll("#events li").length >= 2`)
	leader.halt()
	b.says(`window.before = performance.now(); ""`)
	b.until(`heard - window.before > 5000`) // another has answered, after the one that hangs was waited for
	v.verb("decommission", "host-a", "--timeout", "90s", "--reason", "while the leader stands still").exits(0)
	b.until(`/s left$/.test(document.querySelector("article .left")?.textContent)`)
	b.until(`document.querySelector("#events").innerText.includes("while the leader stands still")`)
	leader.kill()
}

// A browser has six connections to lifeboat web: pages that nobody sees leave them to the one that is looked at.
func TestManyPagesInOneBrowser(t *testing.T) {
	f := newFleet(t)
	f.agent("host-a")
	f.up()
	url, address := f.web(f.http)
	b := newBrowser(t, url)
	for range 8 {
		b.until(`document.querySelector("#health").textContent === "live" && document.querySelectorAll("#events li").length === 1`)
		b.open("http://" + address + "/?find=host-b")
	}
	b.until(`document.querySelector("#health").textContent === "live"`)
	b.until(`document.querySelector("#nodes-count").textContent === "0 of 1"`) // the address says what to show
	b.says(`document.querySelector("#find").value = ""; document.querySelector("#find").dispatchEvent(new Event("input")); document.querySelector("#states button").click(); ""`)
	b.until(`document.querySelector("#nodes-count").textContent === "1"`)
	if at := b.says(`location.search`); at != "?state=ACTIVE" {
		t.Errorf("the address says to show %s", at)
	}
}
