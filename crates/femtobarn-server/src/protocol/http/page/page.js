// Shows what /api/status, /api/recalls and /api/federations tell, every two seconds, and /api/caches if somebody looks there.
"use strict";

const PERIOD_MS = 2000;
// The server reads the whole folder of a cache to tell what leaves next.
const LEAVING_PERIOD_MS = 30000;
const POINTS = 60;
const $ = (id) => document.getElementById(id);
const past = [];

function size(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return `${unit && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
  return `${Math.floor(seconds / 86400)} d`;
}

const count = (number) => number.toLocaleString("en");

// Cells that are numbers stand to the right. Texts are set as texts: they come from clients. A table without rows has a
// line that says so; if there is none, its section is not shown.
function fill(id, rows, none) {
  const table = $(id);
  const heads = [...table.tHead.rows[0].cells];
  const body = document.createElement("tbody");
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((text, at) => {
      const cell = line.insertCell();
      const value = document.createElement("span");
      value.textContent = text;
      if (text !== "") cell.append(value);
      cell.className = heads[at].className;
      // Shown before the text where there is no room for columns.
      cell.dataset.head = heads[at].textContent;
    });
  }
  if (none === undefined) table.closest("section").hidden = !rows.length;
  else if (!rows.length) {
    const cell = body.insertRow().insertCell();
    cell.colSpan = heads.length;
    cell.className = "none";
    cell.textContent = none;
  }
  table.replaceChild(body, table.tBodies[0]);
}

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
  $("rates").replaceChildren(...shown.map(([name, value]) => {
    const box = document.createElement("div");
    const term = document.createElement("dt");
    const data = document.createElement("dd");
    term.textContent = name;
    data.textContent = value;
    box.append(term, data);
    return box;
  }));
}

function showCurve() {
  const steps = (name) => past.slice(1).map((now, at) =>
    Math.max(0, (now.totals[name] - past[at].totals[name]) / ((now.at - past[at].at) / 1000)));
  const curves = { read: steps("bytes_read"), written: steps("bytes_written") };
  const peak = Math.max(1, ...curves.read, ...curves.written);
  $("peak").textContent = `${size(peak)}/s`;
  $("curve").replaceChildren(...Object.entries(curves).map(([name, values]) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const x = (at) => 600 - (values.length - 1 - at) * 600 / (POINTS - 1);
    path.setAttribute("class", name);
    path.setAttribute("d", values.map((value, at) => `${at ? "L" : "M"}${x(at)} ${78 - 76 * value / peak}`).join(""));
    return path;
  }));
}

function showStatus(status) {
  past.push({ at: Date.now(), totals: status.totals });
  if (past.length > POINTS) past.shift();
  const state = status.is_draining ? "stopping" : "running";
  $("server").textContent = `${status.server} on ${location.host}, ${state} for ${duration(status.up_seconds)}`;
  showRates(status.totals);
  showCurve();
  fill("sessions", status.sessions.map((s) => [s.user, s.host, s.program, s.protocol, count(s.open_files),
    count(s.requests), size(s.bytes_read), size(s.bytes_written), duration(s.age_seconds)]), "nobody is here");
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
  const lock = (note) => (l) => [l.federation, l.target, l.by, duration(l.seconds), note];
  fill("locks", [...status.waits.map(lock("waits")), ...status.locks.map(lock("holds it"))], "nothing is locked");
  fill("files", status.files.map((f) => [f.path, f.is_writable ? "writing" : "reading", count(f.users),
    size(f.bytes_read), size(f.bytes_written)]), "no file is open");
}

function showFederation(federation) {
  $("moment").textContent = `${federation.name}, as of commit ${count(federation.csn)}` +
    (federation.is_cut ? "; there is more than is listed here" : "");
  fill("containers", federation.databases.flatMap((database) => database.containers.length
    ? database.containers.map((c) => [`${database.name}/${c.name}`, `${c.class} ${c.class_version}`,
      count(c.objects), size(c.bytes), count(c.csn), database.state])
    : [[`${database.name}/`, "", "", "", "", database.state]]), "there is no database yet");
  const tags = (csn) => federation.tags.filter((tag) => tag.csn === csn).map((tag) => tag.name).join(", ");
  fill("commits", federation.commits.map((c) => [count(c.csn), new Date(c.time_us / 1000).toLocaleString(),
    `${c.user}@${c.host}`, c.message, tags(c.csn)]), "nothing was committed yet");
}

async function ask(path) {
  const answer = await fetch(path);
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error || answer.statusText);
  return told;
}

let askedForLeaving = 0;

function leaves(file, cache) {
  if (file.is_open) return "after it is closed";
  if (cache.idle_seconds === null) return "when room is needed";
  return `in ${duration(Math.max(0, cache.idle_seconds - file.unused_seconds))} at most`;
}

// It may take long, so nothing else waits for it.
async function showLeaving(status) {
  if (!status.caches.length || !$("leaving-of-caches").open || Date.now() - askedForLeaving < LEAVING_PERIOD_MS) return;
  askedForLeaving = Date.now();
  try {
    const caches = await ask("api/caches");
    $("leaving-why").textContent = caches.map((c) => `${c.name}: ${count(c.files)} files, ${size(c.used_bytes)} of ` +
      `${size(c.limit_bytes)}. They leave when it is full` +
      (c.idle_seconds === null ? "" : `, and when nobody had them open for ${duration(c.idle_seconds)}`)).join(". ") + ".";
    fill("leaving", caches.flatMap((c) => c.leaving.map((f) => [c.name, f.file, size(f.bytes), duration(f.unused_seconds),
      leaves(f, c)])), "nothing is kept");
  } catch (error) {
    $("leaving-why").textContent = `The server does not tell: ${error.message}`;
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
    duration(r.remaining_seconds), r.is_running ? "comes" : "waits"]), "nothing comes back");
}

async function showFederations() {
  const names = await ask("api/federations");
  $("federations").hidden = !names.length;
  const choice = $("federation");
  if (choice.options.length !== names.length) choice.replaceChildren(...names.map((name) => new Option(name)));
  if (choice.value) showFederation(await ask(`api/federations${encodeURI(choice.value)}`));
}

async function refresh() {
  try {
    const status = await ask("api/status");
    showStatus(status);
    showLeaving(status);
    await showRecalls(status);
    await showFederations();
    $("error").hidden = true;
  } catch (error) {
    $("error").textContent = `The server does not answer: ${error.message}`;
    $("error").hidden = false;
  }
}

$("federation").addEventListener("change", refresh);
$("leaving-of-caches").addEventListener("toggle", () => { askedForLeaving = 0; refresh(); });
refresh();
setInterval(refresh, PERIOD_MS);
