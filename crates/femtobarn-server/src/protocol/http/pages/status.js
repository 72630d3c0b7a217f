// The status page: shows the answers of /api/status and /api/recalls, every two seconds, and of /api/caches while its
// section is open.
import { $, ask, count, drawn, duration, element, fill, showError, size } from "./elements.js";
import { drawGraph } from "./graph.js";

const PERIOD_MS = 2000;
// The server reads the whole folder of a cache to find the next files to be evicted.
const LEAVING_PERIOD_MS = 30000;
const POINTS = 60;
const past = [];

function rate(name) {
  if (past.length < 2) return 0;
  const [before, now] = past.slice(-2);
  return Math.max(0, (now.totals[name] - before.totals[name]) / ((now.at - before.at) / 1000));
}

function showRates(totals) {
  const shown = [
    ["read", `${size(rate("bytes_read"))}/s`], ["written", `${size(rate("bytes_written"))}/s`],
    ["requests", `${count(Math.round(rate("requests")))}/s`], ["commits", `${count(Math.round(rate("commits")))}/s`],
    ["sessions", count(totals.open_sessions)], ["open files", count(totals.open_files)],
    ["locks", count(totals.locks_held)], ["waiting", count(totals.locks_waited)],
  ];
  $("rates").replaceChildren(...shown.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function showCurve() {
  const steps = (name) => past.slice(1).map((now, at) =>
    Math.max(0, (now.totals[name] - past[at].totals[name]) / ((now.at - past[at].at) / 1000)));
  const curves = { read: steps("bytes_read"), written: steps("bytes_written") };
  const peak = Math.max(1, ...curves.read, ...curves.written);
  $("peak").textContent = `${size(peak)}/s`;
  const x = (at, values) => 600 - (values.length - 1 - at) * 600 / (POINTS - 1);
  $("curve").replaceChildren(...Object.entries(curves).map(([name, values]) => drawn("path", { class: name,
    d: values.map((value, at) => `${at ? "L" : "M"}${x(at, values)} ${78 - 76 * value / peak}`).join("") })));
}

function showStatus(status) {
  past.push({ at: Date.now(), totals: status.totals });
  if (past.length > POINTS) past.shift();
  const state = status.is_draining ? "stopping" : "running";
  $("server").textContent = `${status.server} on ${location.host}, ${state} for ${duration(status.up_seconds)}`;
  showAlerts(status.alerts);
  showRates(status.totals);
  showCurve();
  fill("sessions", status.sessions.map((s) => [s.user, s.host, s.program, s.protocol, count(s.open_files),
    count(s.requests), size(s.bytes_read), size(s.bytes_written), duration(s.age_seconds)]), "no sessions");
  $("cluster").hidden = status.cluster === null;
  if (status.cluster) $("cluster").textContent = status.cluster.is_logged_in ? "Its cluster sends clients here."
    : `Its cluster sends no clients here: ${status.cluster.why_not}`;
  fill("data-servers", status.data_servers.map((s) => [s.address, s.is_cache ? "cache" : "",
    s.is_up ? "up" : `down: ${s.why_down}`, count(s.load), count(s.redirects)]));
  fill("followers", status.followers.map((f) => [f.name, f.federation, count(f.at), count(f.behind),
    duration(Math.round(f.silent_seconds))]));
  fill("copy-servers", status.copy_servers.map((s) => [s.address, s.federation, count(s.at), count(s.behind),
    count(s.load)]));
  fill("caches", status.caches.map((c) => [c.name, size(c.used_bytes), size(c.limit_bytes), size(c.read_bytes),
    size(c.fetched_bytes), size(c.evicted_bytes), count(c.damaged_pages)]));
  const disks = status.caches.filter((c) => c.disks.length > 1).flatMap((c) => c.disks.map((d) => [d.folder, c.name,
    size(d.used_bytes), size(d.limit_bytes), d.why_failed ? `failed: ${d.why_failed}` : "in use"]));
  $("cache-disks").hidden = !disks.length;
  if (disks.length) fill("cache-disks", disks);
  const lock = (note) => (l) => [l.federation, l.target, l.by, duration(l.seconds), note];
  showWaiting(status);
  fill("locks", [...status.waits.map(lock("waits")), ...status.locks.map(lock("holds it"))], "no locks");
  fill("files", status.files.map((f) => [f.path, f.is_writable ? "writing" : "reading", count(f.users),
    size(f.bytes_read), size(f.bytes_written)]), "no file is open");
}

// The alerts. An unchanged alert stays as it is, so that a screen reader does not read it again; an alert that the user has closed
// stays closed when its number changes.
function showAlerts(alerts) {
  const told = JSON.stringify(alerts);
  if ($("alerts").dataset.told === told) return;
  const closed = [...$("alerts").querySelectorAll("details:not([open])")].map((it) => it.dataset.alert);
  $("alerts").dataset.told = told;
  $("alerts").hidden = !alerts.length;
  $("alerts").replaceChildren(...alerts.map((it) => {
    // "7 % of the disk of /lhc.fed are free" is the same alert with another number.
    const key = `${it.name} ${it.summary.replace(/^\d+/, "")}`;
    return element("details", { class: it.is_critical ? "alert critical" : "alert", "data-alert": key, ...!closed.includes(key) && { open: "" } },
      element("summary", {}, `${it.is_critical ? "Critical: " : ""}${it.summary}`),
      element("p", {}, it.description), element("p", {}, element("b", {}, "Remedy: "), it.action));
  }));
}

// The waits of clients for clients, if there are any. A client that waits for itself has two transactions.
function showWaiting({ waits, locks }) {
  const arrows = waits.flatMap((waiter) => locks
    .filter((held) => held.federation === waiter.federation && held.target === waiter.target)
    .map((held) => ({ from: waiter.by, to: held.by, label: waiter.target })));
  const names = [...new Set(arrows.flatMap(({ from, to }) => [from, to]))];
  const waited = new Map(waits.map((waiter) => [waiter.by, waiter.seconds]));
  const box = (name) => ({ name, facts: waited.has(name) ? `waits for ${duration(waited.get(name))}` : "does not wait" });
  // An attribute: elements of SVG have no property of this name.
  $("waiting").toggleAttribute("hidden", !arrows.length);
  drawGraph($("waiting"), names.map(box), arrows);
}

let askedForLeaving = 0;

function leaves(file, cache) {
  if (file.is_open) return "after it is closed";
  if (cache.idle_seconds === null) return "when room is needed";
  return `in ${duration(Math.max(0, cache.idle_seconds - file.unused_seconds))} at most`;
}

// The answer may take long, so no other part of the page waits for it.
async function showLeaving(status) {
  if (!status.caches.length || !$("leaving-of-caches").open || Date.now() - askedForLeaving < LEAVING_PERIOD_MS) return;
  askedForLeaving = Date.now();
  try {
    const caches = await ask("api/caches");
    $("leaving-why").textContent = caches.map((c) => `${c.name}: ${count(c.files)} files, ${size(c.used_bytes)} of ` +
      `${size(c.limit_bytes)}. They leave when the cache is full` +
      (c.idle_seconds === null ? "" : `, and when no client had them open for ${duration(c.idle_seconds)}`)).join(". ") + ".";
    fill("leaving", caches.flatMap((c) => c.leaving.map((f) => [c.name, f.file, size(f.bytes), duration(f.unused_seconds),
      leaves(f, c)])), "no files");
  } catch (error) {
    $("leaving-why").textContent = `The server does not report them: ${error.message}`;
  }
}

// Servers without stores are not asked.
async function showRecalls(status) {
  const queues = status.recalls.length ? await ask("api/recalls") : [];
  $("coming-back").hidden = !queues.length;
  $("recalling").textContent = queues.map((q) => {
    const tapes = q.mounted.map((m) => `${m.tape} of ${m.store}`).join(", ");
    return `${q.name}: ${count(q.waiting)} files come back, ${size(q.waiting_bytes)} wait; ${count(q.done)} came back, ` +
      `${count(q.failed)} failed${tapes && `; mounted: ${tapes}`}`;
  }).join(". ");
  fill("recalls", queues.flatMap((q) => q.recalls).map((r) => [r.path, r.store, r.tape ?? "",
    r.position === null ? "" : count(r.position), size(r.bytes), r.user, duration(r.age_seconds),
    duration(r.remaining_seconds), r.is_running ? "comes" : "waits"]), "no file comes back");
}

async function showFederations() {
  const names = await ask("api/federations");
  $("federations").hidden = !names.length;
  const link = (name) => element("li", {}, element("a", { href: `catalogue?federation=${encodeURIComponent(name)}` }, name));
  $("names").replaceChildren(...names.map(link));
}

async function refresh() {
  try {
    const status = await ask("api/status");
    showStatus(status);
    showLeaving(status);
    await showRecalls(status);
    await showFederations();
    showError("");
  } catch (error) {
    showError(`The server does not answer: ${error.message}`);
  }
}

$("leaving-of-caches").addEventListener("toggle", () => { askedForLeaving = 0; refresh(); });
refresh();
setInterval(refresh, PERIOD_MS);
