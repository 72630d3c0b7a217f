// Shows the intervals of a series as of a commit. Only windows that overlap the visible range are requested.
"use strict";

const $ = (id) => document.getElementById(id);
const AT_ONCE = 6;
let head = null;
let shown = null;
let other = null;
let turn = 0;

async function ask(path) {
  const answer = await fetch(path);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  return body;
}

function fail(error) {
  $("error").textContent = error.message;
  $("error").hidden = false;
}

const encoded = (path) => path.split("/").map(encodeURIComponent).join("/");

function fill(select, values, texts = values) {
  const before = select.value;
  select.replaceChildren(...values.map((value, at) => new Option(texts[at], value)));
  if (values.includes(before)) select.value = before;
}

// The newest commit at the first request, then the commit of the slider.
const asOf = () => (head ? `?csn=${$("csn").value}` : "");
const headOf = (tag) => ask(`heads${tag ? `/${encodeURIComponent(tag)}` : ""}${asOf()}`);

class Version {
  constructor(description, path, isCompared) {
    this.description = description;
    this.path = path;
    // Entries do not show a difference: a corrected condition keeps its entry.
    this.query = isCompared ? "?digests=true" : "";
    this.windows = new Map();
    this.axis = axisOf(description.clock);
  }

  static async of(heads, name, isCompared) {
    const found = heads.series.find((it) => it.series === name);
    if (!found) return null;
    const path = `${found.version}/${encoded(found.path)}`;
    return new Version(await ask(`series/${path}`), found, isCompared);
  }

  // Requests the windows that overlap a range of the axis.
  async load(since, until) {
    const isIn = (window) => this.axis.place(window.since) < until && since < this.axis.place(window.until);
    await this.loadWindows([...this.description.windows.keys()].filter((it) => isIn(this.description.windows[it])));
  }

  async loadWindows(numbers) {
    const { path, version } = this.path;
    const wanted = numbers.filter((number) => !this.windows.has(number));
    const next = async () => {
      while (wanted.length) {
        const number = wanted.shift();
        this.windows.set(number, await ask(`windows/${version}/${number}/${encoded(path)}${this.query}`));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, next));
  }

  // The loaded windows, with the places of their intervals on an axis.
  loaded(axis) {
    const numbers = [...this.windows.keys()].sort((a, b) => a - b);
    return numbers.map((number) => {
      const window = this.windows.get(number);
      if (window.axis !== axis) {
        const { since, until } = window.intervals;
        const places = (moments) => Float64Array.from(moments, (moment) => axis.place(moment));
        Object.assign(window, { axis, places: { since: places(since), until: places(until) } });
        Object.assign(window, { first: axis.place(window.since), end: axis.place(window.until) });
      }
      return window;
    });
  }

  // From the first beginning to the last end that is no limit of the clock, as places.
  async extent() {
    const last = this.description.windows.length - 1;
    await this.loadWindows(last ? [0, last] : [0]);
    let [since, until] = [Infinity, -Infinity];
    for (const { intervals } of this.windows.values()) {
      this.axis.fit?.(intervals.since);
      this.axis.fit?.(intervals.until);
      for (const moment of intervals.since) if (moment > -LIMIT && moment < since) since = moment;
      for (const moments of [intervals.since, intervals.until]) {
        for (const moment of moments) if (moment < LIMIT && moment > until) until = moment;
      }
    }
    if (until === -Infinity) [since, until] = [0, 0];
    [since, until] = [Math.min(since, until), until].map((moment) => this.axis.place(moment));
    const margin = until > since ? (until - since) / 50 : this.axis.margin;
    return [since - margin, until + margin];
  }
}

const timeline = new Timeline($("timeline"), {
  onMove(since, until) {
    const [, step] = timeline.axis.marks(since, until, (until - since) / 10);
    $("range").textContent = [since, until].map((it) => timeline.axis.label(it, Math.min(step, DAY - 1))).join(" – ");
    loadShown();
  },
  async onPick(channel, place, interval) {
    $("at").textContent = `channel ${channel} at ${timeline.axis.label(place)}` +
      (interval ? `: entry ${interval.entry}, ${bound(interval.since)} – ${bound(interval.until)}` : ": nothing is valid");
    $("value").textContent = "";
    if (!interval) return;
    const { path, version } = shown.path;
    try {
      const { values } = await ask(`conditions/${version}/${interval.entry}/${encoded(path)}`);
      $("value").textContent = JSON.stringify(values[0], null, 1);
    } catch (error) { fail(error); }
  },
});

const bound = (moment) => (Math.abs(moment) >= LIMIT ? "open" : timeline.axis.label(timeline.axis.place(moment)));

async function loadShown() {
  const mine = ++turn;
  try {
    const versions = [shown, other].filter((it) => it);
    await Promise.all(versions.map((it) => it.load(...timeline.range)));
    if (mine !== turn) return;
    timeline.windows = shown.loaded(timeline.axis);
    timeline.others = other && other.loaded(timeline.axis);
    timeline.draw();
    timeline.canvas.dataset.intervals = timeline.windows.reduce((sum, it) => sum + it.intervals.entry.length, 0);
  } catch (error) { fail(error); }
}

async function showSeries(isNew) {
  const name = $("series").value;
  try {
    const compared = $("other").value;
    const otherHead = compared ? await headOf(compared === "-" ? "" : compared) : null;
    shown = name ? await Version.of(head, name, Boolean(compared)) : null;
    other = otherHead ? await Version.of(otherHead, name, true) : null;
    $("legend").hidden = !other;
    if (!shown) return;
    const extent = await shown.extent();
    timeline.show([], null, shown.axis);
    if (isNew) {
      timeline.all = extent;
      timeline.showRange(...timeline.all);
    } else await loadShown();
    $("error").hidden = true;
  } catch (error) { fail(error); }
}

async function showHead(isNew) {
  try {
    head = await headOf($("tag").value);
    $("federation").textContent = head.federation;
    $("shown-csn").textContent = $("csn").value;
    fill($("series"), head.series.map((it) => it.series));
    await showSeries(isNew);
  } catch (error) { fail(error); }
}

// The choice is in the address, so that the page can be shared.
function keepChoice() {
  const choice = ["series", "tag", "other"].map((id) => [id, $(id).value]).filter(([, value]) => value);
  history.replaceState(null, "", `#${new URLSearchParams(choice)}`);
}

function takeChoice() {
  for (const [id, value] of new URLSearchParams(location.hash.slice(1))) {
    const select = ["series", "tag", "other"].includes(id) && $(id);
    if (select && [...select.options].some((option) => option.value === value)) select.value = value;
  }
}

async function start() {
  try {
    const [tags, newest] = await Promise.all([ask("tags"), ask("heads")]);
    const names = tags.map((it) => it.name);
    fill($("tag"), ["", ...names], ["none: all series", ...names]);
    fill($("other"), ["", "-", ...names], ["nothing", "all series", ...names]);
    fill($("series"), newest.series.map((it) => it.series));
    takeChoice();
    $("csn").max = newest.resolved_at;
    $("csn").value = newest.resolved_at;
    await showHead(true);
  } catch (error) { fail(error); }
}

for (const [id, show] of [["series", () => showSeries(true)], ["tag", () => showHead(false)], ["other", () => showSeries(false)]]) {
  $(id).addEventListener("change", () => { keepChoice(); show(); });
}
$("csn").addEventListener("input", () => { $("shown-csn").textContent = $("csn").value; });
$("csn").addEventListener("change", () => showHead(false));
start();
