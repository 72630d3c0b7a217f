// The page `/catalogue`. The address has all choices, so that a link to it shows the same.
import { $, ask, count, escaped, moment, showError, size } from "./elements.js";
import { showClasses } from "./classes.js";
import { beginContainers, showContainers } from "./containers.js";
import { beginDetails, showDetails } from "./details.js";
import { beginHistory, showHistory } from "./history.js";

// The choices within the details of a container, which every other choice closes.
const DETAILS = { container: "", inside: "", entry: "", field: "", second: "", where: "", bins: "", low: "", high: "",
  bins2: "", low2: "", high2: "" };
const DEFAULTS = { federation: "", csn: "", view: "containers", search: "", class: "", state: "", sort: "created",
  descending: "", offset: "0", message: "", ...DETAILS };
const VIEWS = { containers: showContainers, classes: showClasses, history: showHistory };

const chosen = { ...DEFAULTS };
let overview = null;
// Aborts the requests to the server when something else is chosen.
let waiting = new AbortController();
// The choices that the view shows. Below the details of a container it stays as it is, with its focus.
let drawn = "";

// Changes the choices, and shows them. Typing and dragging add no step to the browser's history.
async function choose(changes, isStep = true) {
  const isInside = Object.keys(changes).every((name) => name in DETAILS && name !== "container");
  Object.assign(chosen, isInside ? {} : DETAILS, changes);
  const given = Object.entries(chosen).filter(([name, value]) => `${value}` !== DEFAULTS[name]);
  const address = `${location.pathname}?${new URLSearchParams(given)}`;
  history[isStep ? "pushState" : "replaceState"](null, "", address);
  await show();
}

async function show() {
  waiting.abort();
  waiting = new AbortController();
  const { signal } = waiting;
  $("federation").value = chosen.federation;
  try {
    overview = await ask(`api/federations${escaped(chosen.federation)}`, { csn: chosen.csn }, signal);
    showMoment();
    for (const link of document.querySelectorAll("nav a")) {
      link.href = `?${new URLSearchParams({ federation: chosen.federation, csn: chosen.csn, view: link.dataset.view })}`;
      if (link.dataset.view === chosen.view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    for (const view of Object.keys(VIEWS)) $(`view-${view}`).hidden = view !== chosen.view;
    const view = JSON.stringify([{ ...chosen, ...DETAILS }, overview.head]);
    if (view !== drawn) {
      drawn = "";
      await VIEWS[chosen.view](chosen, overview, signal);
      drawn = view;
    }
    await showDetails(chosen, overview, signal);
    showError("");
  } catch (error) {
    if (!signal.aborted) showError(`The catalogue cannot be shown: ${error.message}`);
  }
}

function showMoment() {
  $("sums").textContent = `${overview.name}: ${count(overview.databases)} databases, ${count(overview.containers)} containers, ` +
    `${count(overview.objects)} objects, ${size(overview.bytes)}`;
  $("csn").max = overview.head;
  $("csn").value = overview.csn;
  $("commit-number").textContent = `${count(overview.csn)} of ${count(overview.head)}`;
  $("newest").disabled = chosen.csn === "";
  const tags = overview.tags.map((tag) => new Option(`${tag.name} (${count(tag.csn)})`, tag.csn));
  $("tag").replaceChildren(new Option(tags.length ? "tags" : "no tags", ""), ...tags);
  $("tag").disabled = !tags.length;
  $("tag").value = overview.tags.some((tag) => tag.csn === overview.csn) ? overview.csn : "";
  const commit = overview.commit;
  $("commit").textContent = commit
    ? `${moment(commit.time_us)}, ${commit.user}@${commit.host}${commit.message && `: ${commit.message}`}` : "no commits yet";
}

function read() {
  const given = Object.fromEntries(new URLSearchParams(location.search));
  Object.assign(chosen, DEFAULTS, given);
  chosen.federation ||= $("federation").options[0].value;
  if (!Object.hasOwn(VIEWS, chosen.view)) chosen.view = DEFAULTS.view;
}

async function begin() {
  try {
    const names = await ask("api/federations");
    if (!names.length) throw new Error("the server has no federation that you may read");
    $("federation").replaceChildren(...names.map((name) => new Option(name)));
  } catch (error) {
    showError(`The catalogue cannot be shown: ${error.message}`);
    return;
  }
  read();
  $("federation").addEventListener("change", () => choose({ ...DEFAULTS, federation: $("federation").value, view: chosen.view }));
  $("csn").addEventListener("input", () => { $("commit-number").textContent = `${count(Number($("csn").value))} of ${count(Number($("csn").max))}`; });
  $("csn").addEventListener("change", () => choose({ csn: $("csn").value === $("csn").max ? "" : $("csn").value, offset: 0 }, false));
  $("tag").addEventListener("change", () => choose({ csn: $("tag").value, offset: 0 }));
  $("newest").addEventListener("click", () => choose({ csn: "", offset: 0 }));
  for (const link of document.querySelectorAll("nav a")) {
    link.addEventListener("click", (event) => { event.preventDefault(); choose({ view: link.dataset.view }); });
  }
  $("moment").addEventListener("submit", (event) => event.preventDefault());
  for (const form of document.querySelectorAll(".filters")) form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("popstate", () => { read(); show(); });
  beginContainers(choose);
  beginHistory(choose);
  beginDetails(choose);
  await show();
}

begin();
