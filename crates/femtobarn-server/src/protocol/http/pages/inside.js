// Looks into a container: its first objects, and a histogram of a field. A worker reads the file and counts.
import { $, count, element, fill, size } from "./elements.js";
import { drawHistogram } from "./histogram.js";
import { real } from "./numbers.js";

const OBJECTS = 10;
const TEXT_MAX = 100;

let reading = null;

export function beginInside(choose) {
  $("look").addEventListener("click", () => choose({ inside: "true" }));
  $("inside-more").addEventListener("click", () => showing(() => showObjects(reading)));
  $("inside-field").addEventListener("change", () => choose({ field: $("inside-field").value, bins: "", low: "", high: "" }, false));
  for (const name of ["bins", "low", "high"]) {
    $(`inside-${name}`).addEventListener("change", (event) => choose({ [name]: event.target.value }, false));
  }
  $("inside-form").addEventListener("submit", (event) => event.preventDefault());
  $("details").addEventListener("close", end);
}

export async function showInside(chosen, file, container) {
  $("look").hidden = chosen.inside !== "";
  $("inside").hidden = chosen.inside === "";
  if (chosen.inside === "") return end();
  const key = `${file}#${container}`;
  await showing(async () => {
    if (reading?.key !== key) await open(key, file, container);
    await showHistogram(reading, chosen);
  });
}

// Shows why a container cannot be read, where it would be.
async function showing(show) {
  try {
    $("inside-error").hidden = true;
    await show();
  } catch (error) {
    $("inside-error").textContent = `The container cannot be read: ${error.message}`;
    $("inside-error").hidden = false;
  }
}

function end() {
  reading?.worker.terminate();
  reading = null;
}

async function open(key, file, container) {
  end();
  const worker = new Worker("pages/inside_worker.js", { type: "module" });
  const opened = { key, worker, waiting: new Map(), asked: 0, next: 0, rows: [], said: {} };
  reading = opened;
  worker.addEventListener("message", ({ data }) => heard(opened, data));
  worker.addEventListener("error", () => opened.waiting.forEach((it) => it.reject(new Error("its reader has ended"))));
  $("inside-facts").textContent = "reading …";
  opened.said = await ask(opened, "open", { url: file, container });
  const { fields, numbers, unreadable } = opened.said;
  $("inside-field").replaceChildren(...numbers.map((path) => new Option(path)));
  $("inside-form").hidden = !numbers.length;
  $("inside-objects").tHead.rows[0].replaceChildren(element("th", { class: "n" }, "object"),
    ...fields.map((field) => element("th", { title: field.type }, field.name)));
  $("inside-unreadable").textContent = unreadable.map((it) => `${it.name} is not shown: ${it.reason}.`).join(" ");
  await showObjects(opened);
}

function ask({ worker, waiting }, what, more) {
  const id = reading.asked += 1;
  worker.postMessage({ id, ask: what, ...more });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

function heard({ waiting }, { id, told, failed, progress }) {
  if (progress !== undefined) { $("inside-facts").textContent = `read ${progress} …`; return; }
  if (failed === undefined) waiting.get(id).resolve(told);
  else waiting.get(id).reject(new Error(failed));
  waiting.delete(id);
}

async function showObjects(opened) {
  const { objects, next } = await ask(opened, "objects", { first: opened.next, count: OBJECTS });
  opened.next = next;
  opened.rows.push(...objects.map(({ entry, value }) => [count(entry), ...opened.said.fields.map((field) => text(value[field.name]))]));
  fill("inside-objects", opened.rows, "it has no objects");
  $("inside-more").hidden = next >= opened.said.entries;
}

// A value as people write it, on one line.
function text(value) {
  const whole = written(value);
  return whole.length > TEXT_MAX ? `${whole.slice(0, TEXT_MAX)} …` : whole;
}

function written(value) {
  if (value === null) return "none";
  if (Array.isArray(value)) return `[${value.map(written).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, it]) => `${name}: ${written(it)}`).join(", ")}}`;
  return real(value);
}

async function showHistogram(opened, chosen) {
  const { numbers, entries } = opened.said;
  if (!numbers.length) { $("inside-facts").textContent = ""; return; }
  const path = numbers.includes(chosen.field) ? chosen.field : numbers[0];
  $("inside-field").value = path;
  const range = Object.fromEntries(["bins", "low", "high"].map((name) => [name, chosen[name] === "" ? undefined : Number(chosen[name])]));
  if (range.bins !== undefined) range.bins = Math.min(Math.max(1, Math.round(range.bins)), 1000);
  const told = await ask(opened, "histogram", { path, ...range });
  // A newer one is on its way.
  if (!told) return;
  drawHistogram($("histogram"), path, told);
  for (const name of ["bins", "low", "high"]) {
    $(`inside-${name}`).value = chosen[name];
    $(`inside-${name}`).placeholder = short(told[name]);
  }
  const shape = `${real(told.least)} to ${real(told.greatest)}, mean ${short(told.mean)}, standard deviation ${short(told.deviation)}`;
  const outside = [[told.below, "below"], [told.above, "above"], [told.invalid, "NaN"]].filter(([number]) => number);
  const part = told.read < entries ? `, the first of ${count(entries)}` : "";
  $("inside-facts").textContent = `${count(told.numbers)} numbers of ${count(told.objects)} objects${part}` +
    `${told.finite ? `: ${shape}` : ""}${outside.map(([number, what]) => `, ${count(number)} ${what}`).join("")}. ` +
    `Fetched ${size(told.bytes)} in ${count(told.requests)} ${told.requests === 1 ? "request" : "requests"}.`;
}

const short = (number) => `${Number(number.toPrecision(5))}`;
