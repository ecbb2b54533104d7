"use strict";
// The page asks /nodes, follows /events, and draws. Whatever comes from the fleet becomes text, never markup.

const rowsShown = 200, cardsShown = 60, eventsShown = 60;
const leastPause = 2000, mostPause = 10000; // between two looks at the nodes; a fleet that takes long to tell is asked less often
const askAgain = 3000;   // after an answer to follow events that was none
const silence = 10000;   // after which the page says that it gets no answer, and how old is what it shows

// What is told of (docs/events.md), which a test compares, but for BlocksMoved: each second, for each two nodes. Cards show that, and no other
// event would be in sight.
const types = ["AppEnded", "AppResumed", "BlocksBroken", "BrakeHolds", "BrakeReleased", "DecommissionChanged", "ExecutorDecommissioned", "Gap",
  "HostsRefreshed", "HostsRefused", "MachineDown", "MachineUp", "MaintenanceScheduled", "ManifestReceived", "NodeChanged", "NodeDeactivated", "NodeDecommissioned",
  "NodeDecommissioning", "NodeExcluded", "NodeForgotten", "NodeGone", "NodeJoined", "NodeLost", "NodeReactivated", "NodeReadmitted", "NodeRecommissioned",
  "NodeRegistered", "NodeReplaced", "NodeReturned", "NodeSchedulable", "NodeShutdown", "NodeSuspect", "NodeTrusted", "NodeUnschedulable", "NoticeWithdrawn",
  "WorkerDecommission"];

const $ = (id) => document.getElementById(id);
const loud = new Set(["LOST"]), busy = new Set(["DECOMMISSIONING", "SHUTDOWN"]);
let nodes = [], heard = 0, trouble = "", state = "", events = [];
let asked = 0; // since when the nodes are asked for; 0: they are not
let source = null, place = "", lookAgain = 0, followAgain = 0;
let epoch = Date.now() - performance.now(); // the leader's clock less our stopwatch; a guess until it has answered, for our clock may be wrong

function make(tag, text, ...classes) {
  const e = document.createElement(tag);
  if (text !== undefined && text !== null) e.textContent = text;
  e.classList.add(...classes.filter(Boolean));
  return e;
}

// span is a length of time with the two units that matter, as the verbs print it.
function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (seconds < 9.95) return Math.max(0, seconds).toFixed(1) + "s";
  if (s < 60) return s + "s";
  if (s < 3600) return Math.floor(s / 60) + "m" + (s % 60) + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h" + Math.floor((s % 3600) / 60) + "m";
  return Math.floor(s / 86400) + "d" + Math.floor((s % 86400) / 3600) + "h";
}

function size(bytes) {
  if (bytes < 1024) return bytes + " B";
  let f = bytes / 1024, unit = "KiB";
  for (const next of ["MiB", "GiB", "TiB", "PiB"]) {
    if (f < 1023.5) break;
    f /= 1024; unit = next;
  }
  return (f >= 99.95 ? f.toFixed(0) : f.toFixed(1)) + " " + unit;
}

const clock = () => epoch + performance.now(); // what the leader's shows
const since = () => (performance.now() - heard) / 1000; // seconds since the nodes were told
const ink = (s) => loud.has(s) ? "loud-ink" : busy.has(s) ? "busy-ink" : s === "ACTIVE" ? "calm-ink" : "";

function stateOf(n) {
  const words = [n.state];
  if (n.sub_state && n.sub_state !== "NONE" && n.sub_state !== n.state) words[0] += "/" + n.sub_state;
  if (n.deactivated) words.push("deactivated");
  if (n.excluded) words.push("excluded");
  const begins = n.maintenance_start === null ? 0 : (Date.parse(n.maintenance_start) - clock()) / 1000;
  if (n.maintenance !== "UP") words.push(n.maintenance.toLowerCase() + (n.maintenance === "DRAINING" && begins > 0 ? " in " + span(begins) : ""));
  return words.join(", ");
}

const unwell = (n) => n.disks.filter((d) => d.health !== "HEALTHY" && d.health !== "UNKNOWN");
const rehearses = (of) => of.source === "simulate"; // a notice, or what an account is of: nothing is lost by that
const lost = (n) => (n.state === "DECOMMISSIONED" || n.state === "GONE") && n.manifest && !rehearses(n.manifest.incident) ? n.manifest.blocks.lost : 0;
const rank = (n) => loud.has(n.state) || lost(n) ? 0 : n.state === "DECOMMISSIONING" ? 1 : n.notice ? 2 : unwell(n).length ? 3 : n.state === "ACTIVE" ? 4 : 5;

// fit makes what is shown into what is to be shown, and leaves alone what stays the same, or whoever marks a name to copy it loses it
// every two seconds.
function fit(parent, wanted) {
  const had = [...parent.children];
  wanted.forEach((w, i) => {
    const h = had[i];
    if (!h) parent.append(w);
    else if (h.isEqualNode(w)) return;
    else if (h.children.length && w.children.length && h.cloneNode(false).isEqualNode(w.cloneNode(false))) fit(h, [...w.children]);
    else h.replaceWith(w);
  });
  for (const h of had.slice(wanted.length)) h.remove();
}

// drawStates keeps the buttons that are there: one that is made anew is not the one that the keyboard is on.
function drawStates() {
  const count = new Map(state ? [[state, 0]] : []); // which can be taken back when no node is in it any more
  for (const n of nodes) count.set(n.state, (count.get(n.state) || 0) + 1);
  const had = new Map([...$("states").children].map((li) => [li.dataset.state, li]));
  for (const [s, li] of had) if (!count.has(s)) li.remove();
  [...count].sort().forEach(([s, n], i) => {
    let li = had.get(s);
    if (!li) {
      const b = make("button", "", ink(s));
      b.type = "button";
      b.onclick = () => { state = state === s ? "" : s; keepChoice(); draw(); };
      li = make("li");
      li.dataset.state = s;
      li.append(b);
      $("states").insertBefore(li, $("states").children[i] || null);
    }
    li.firstChild.textContent = n + " " + s;
    li.firstChild.setAttribute("aria-pressed", String(state === s));
  });
}

function card(n) {
  const a = make("article");
  const left = n.remaining_seconds === null ? null : n.remaining_seconds - since();
  const h = make("h3");
  const until = make("span", left === null ? "no deadline" : left > 0 ? span(left) + " left" : "time is up", "left");
  if (left !== null) until.dataset.until = String(performance.now() + left * 1000);
  h.append(make("span", n.name), until);
  a.append(h);
  const kind = n.notice && n.notice.kind !== "decommission" && n.notice.kind; // which is what an order is called
  const why = [kind, n.reason || (n.notice && n.notice.reason)].filter(Boolean).join(": ");
  a.append(make("p", stateOf(n) + (why ? " — " + why : ""), "quiet"));
  const d = n.drain;
  if (d && d.bytes_total > 0) {
    const p = make("progress");
    p.max = d.bytes_total;
    if (d.phase !== "scanning") p.value = d.bytes_moved; // else the whole is not known: no part of the bar is full
    p.setAttribute("aria-label", n.name + ": bytes carried");
    a.append(p);
    const rest = d.bytes_total - d.bytes_moved, rate = d.bytes_per_second;
    let line = `${size(d.bytes_moved)} of ${size(d.bytes_total)}, ${d.blocks.moved} of ${d.blocks.total} blocks`;
    if (rest > 0 && rate > 0) line += `, ${size(rate)}/s`;
    a.append(make("p", line));
    const spare = rest > 0 && rate > 0 && left !== null ? left - rest / rate : null;
    if (d.phase === "scanning" && (spare === null || spare > 0)) { // there is more to come, of which nobody knows
      a.append(make("p", "looking for more", "quiet"));
    } else if (spare !== null) {
      a.append(make("p", spare > 0 ? `at this speed done ${span(spare)} early` : `at this speed ${size(Math.round(rest - Math.max(0, left) * rate))} stay behind`, spare > 0 ? "calm-ink" : "loud-ink"));
      a.classList.add(spare > 0 ? "calm" : "loud");
    }
    if (d.blocks.lost > 0) { a.append(make("p", d.blocks.lost + " blocks lost", "loud-ink")); a.classList.add("loud"); }
    for (const p of d.peers.filter((p) => p.trouble).slice(0, 3)) a.append(make("p", p.node + ": " + p.trouble, "busy-ink"));
  }
  if (n.waits_for.length) a.append(make("p", "waits for " + n.waits_for.slice(0, 4).join(", ") + (n.waits_for.length > 4 ? " and more" : "")));
  return a;
}

function drawLeaving() {
  const all = nodes.filter((n) => n.state === "DECOMMISSIONING").sort((a, b) => (a.remaining_seconds ?? 1e12) - (b.remaining_seconds ?? 1e12));
  $("leaving-part").hidden = all.length === 0;
  say("leaving-count", all.length > cardsShown ? `${all.length}, the first ${cardsShown} of them` : String(all.length));
  fit($("leaving"), all.slice(0, cardsShown).map(card));
}

function drawMaintenance(told) {
  const chips = [];
  for (const m of told.down_machines) chips.push([m, "DOWN"]);
  for (const m of told.draining_machines) chips.push([m.id, "DRAINING"]);
  $("maintenance-part").hidden = chips.length === 0;
  $("maintenance").replaceChildren(...chips.slice(0, 200).map(([m, mode]) => make("span", `${[m.hostname, m.ip].filter(Boolean).join(" ")} ${mode}`, mode === "DOWN" && "busy-ink")));
}

function row(n) {
  const tr = make("tr");
  const ill = unwell(n);
  const th = make("th", n.name);
  th.scope = "row";
  tr.append(th,
    make("td", stateOf(n) + (n.suspect_seconds !== null ? `, silent for ${span(n.suspect_seconds + since())}` : "") + (n.notice && n.notice.kind !== "decommission" ? ` (${n.notice.kind}${rehearses(n.notice) ? ", rehearsal" : ""})` : "") + (lost(n) ? `, ${lost(n)} blocks lost: lifeboat manifest ${n.name}` : ""), "words", lost(n) ? "loud-ink" : ink(n.state)),
    make("td", n.zone || "-"), make("td", n.pool || "-"),
    make("td", n.held_blocks ? `${size(n.held_bytes)} in ${n.held_blocks}` : "-", "number"),
    make("td", size(n.room_bytes) + (n.vault_room_bytes === null || n.vault_room_bytes >= n.room_bytes || size(n.vault_room_bytes) === size(n.room_bytes) ? "" : ` (vault: ${size(n.vault_room_bytes)})`), "number"),
    make("td", n.disks.length === 0 ? "-" : ill.length ? ill.map((d) => d.path + " " + d.health).join(", ") : "well", ...(ill.length ? ["words", "loud-ink"] : [])),
    make("td", n.last_heartbeat_seconds === null ? "-" : span(n.last_heartbeat_seconds + since()), "number"));
  return tr;
}

// keepChoice writes into the address which nodes are to be shown: a link says it, and the page that is sent to another leader.
function keepChoice() {
  const choice = new URLSearchParams();
  if (state) choice.set("state", state);
  if ($("find").value) choice.set("find", $("find").value);
  history.replaceState(null, "", "?" + choice);
}

function drawNodes() {
  const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const some = nodes.filter((n) => (!state || n.state === state) && words.every((w) => `${n.name} ${stateOf(n)} ${n.zone} ${n.pool}`.toLowerCase().includes(w)));
  some.sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  $("nodes-count").textContent = some.length === nodes.length ? nodes.length : `${some.length} of ${nodes.length}`;
  fit($("nodes"), some.slice(0, rowsShown).map(row));
  $("more").hidden = some.length <= rowsShown;
  $("more").textContent = `${some.length - rowsShown} more: say which to show above`;
}

function drawEvents() {
  fit($("events"), events.map((e) => {
    const li = make("li");
    const t = make("time", span((clock() - Date.parse(e.time)) / 1000) + " ago", "quiet");
    t.dateTime = e.time;
    const said = Object.entries(e.data || {}).map(([k, v]) => `${k}=${v}`.replace(/\.\d+Z$/, "Z")).join("  "); // deadlines to the second
    li.append(t, make("span", [e.type, e.node].filter(Boolean).join("  "), /Lost|Broken|Refused|Excluded/.test(e.type) || e.data && Number(e.data.lost) > 0 && !e.data.rehearsal ? "loud-ink" : ""), make("span", said, "quiet"));
    return li;
  }));
}

const suspects = () => nodes.filter((n) => n.suspect_seconds !== null).length;

// say changes what a screen reader tells of, if it is to change: it is told again otherwise.
function say(id, text) { if ($(id).textContent !== text) $(id).textContent = text; }

function drawHealth() {
  const silent = asked > 0 && performance.now() - asked > silence, age = performance.now() - heard;
  $("health").className = trouble || silent ? "trouble" : "";
  say("word", trouble || (silent ? "no answer" : heard === 0 ? "asking the coordinator…" : suspects() > 0 ? `live, ${suspects()} silent` : "live"));
  $("age").textContent = heard > 0 && (trouble || age > silence) ? `; what is shown is ${span(age / 1000)} old` : "";
}

function draw() { drawStates(); drawLeaving(); drawNodes(); drawHealth(); }

async function ask(path) {
  const r = await fetch(path, { cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(20000) });
  if (r.type === "opaqueredirect") location.reload(); // another leads now: this page may not ask it, and is sent to its own
  if (!r.ok) throw new Error(`${r.status}: ${await reason(r) || r.statusText}`);
  const date = Date.parse(r.headers.get("Date")) + 500; // it says the second, not what has passed of it
  if (Math.abs(date - clock()) > 1000) epoch = date - performance.now(); // less is the rounding, and the way here
  return r.json();
}

// reason is why a request was refused, in the words of a coordinator, or of lifeboat web.
async function reason(r) {
  const text = await r.text();
  try { return JSON.parse(text).error; } catch { return /^text\/plain/.test(r.headers.get("Content-Type")) ? text.split("\n\n")[0] : ""; }
}

async function look() {
  if (asked) return;
  const began = asked = performance.now();
  try {
    const [all, plan] = await Promise.all([ask("nodes"), ask("maintenance/status")]);
    nodes = all; heard = performance.now(); trouble = "";
    drawMaintenance(plan);
    draw();
  } catch (e) {
    trouble = "the coordinator does not answer: " + e.message;
    drawHealth();
  }
  asked = 0;
  if (!document.hidden) lookAgain = setTimeout(look, Math.min(mostPause, Math.max(leastPause, 10 * (performance.now() - began))));
}

// follow follows the events, after a place or from a while ago on. A browser asks again by itself when a stream ends, but no more once it
// was refused, as it is where no coordinator leads, or none answers.
function follow() {
  const s = source = new EventSource("events?" + (place ? "after=" + place : "last=" + eventsShown) + "&type=" + types.join("&type="));
  s.onopen = () => {
    $("events-state").textContent = "";
    if (!place) events = [];
  };
  s.onerror = () => {
    $("events-state").textContent = "not followed now; trying again";
    if (s.readyState === EventSource.CLOSED) followAgain = setTimeout(follow, askAgain);
  };
  const take = (m) => {
    place = m.lastEventId;
    const e = JSON.parse(m.data);
    events = [e, ...events].slice(0, eventsShown);
    if (!drawing) { drawing = true; setTimeout(() => { drawing = false; drawEvents(); }, 200); } // thousands may come at once
  };
  for (const t of types) s.addEventListener(t, take);
}
let drawing = false;

setInterval(() => {
  drawHealth();
  for (const c of document.querySelectorAll("[data-until]")) {
    const left = (Number(c.dataset.until) - performance.now()) / 1000;
    c.textContent = left > 0 ? span(left) + " left" : "time is up";
  }
}, 500);
setInterval(drawEvents, 5000);

// attend asks and follows while somebody sees the page. A browser has six connections to lifeboat web for all its pages, and each page that
// follows takes one: forgotten pages would leave none to ask with.
function attend() {
  clearTimeout(lookAgain); clearTimeout(followAgain);
  if (source) source.close();
  if (document.hidden) return;
  place = ""; // what happened meanwhile may be much: the newest is enough
  look();
  follow();
}
document.addEventListener("visibilitychange", attend);
const choice = new URLSearchParams(location.search);
state = choice.get("state") || "";
$("find").value = choice.get("find") || "";
$("find").addEventListener("input", () => { keepChoice(); drawNodes(); });
attend();
