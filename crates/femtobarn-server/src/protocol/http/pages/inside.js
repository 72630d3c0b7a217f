// Looks into a container: plots (plot.js), and its first objects (objects.js). A worker reads the file and computes.
import { $ } from "./elements.js";
import { beginObjects, showObjects } from "./objects.js";
import { beginPlot, offerNumbers, showPlot } from "./plot.js";

let reading = null;

export function beginInside(choose) {
  $("look").addEventListener("click", () => choose({ inside: "true" }));
  beginPlot(choose);
  beginObjects(choose, (show) => showing(() => show(reading)));
  $("details").addEventListener("close", end);
}

// Shows the container of a source {file, container, ...}, which details.js describes.
export async function showInside(chosen, source) {
  $("look").hidden = chosen.inside !== "";
  $("inside").hidden = chosen.inside === "";
  if (chosen.inside === "") return end();
  const key = `${source.file}#${source.container}`;
  await showing(async () => {
    if (reading?.key !== key) await open(key, source);
    await showObjects(reading, chosen);
    await showPlot(reading, chosen);
  });
}

// Shows why a container cannot be read, where it would be.
async function showing(show) {
  try {
    $("inside-error").hidden = true;
    await show();
  } catch (error) {
    $("inside-facts").textContent = "";
    $("inside-error").textContent = `The container cannot be read: ${error.message}`;
    $("inside-error").hidden = false;
  }
}

function end() {
  reading?.worker.terminate();
  reading = null;
}

async function open(key, source) {
  end();
  const worker = new Worker("pages/inside_worker.js", { type: "module" });
  const waiting = new Map();
  let asked = 0;
  // The worker's answer; an error with `isExpression` is in the requested expression.
  const ask = (what, more) => {
    asked += 1;
    worker.postMessage({ id: asked, ask: what, ...more });
    return new Promise((resolve, reject) => waiting.set(asked, { resolve, reject }));
  };
  reading = { key, source, worker, ask, said: {} };
  worker.addEventListener("message", ({ data }) => heard(waiting, data));
  worker.addEventListener("error", () => waiting.forEach((it) => it.reject(new Error("its reader has ended"))));
  $("inside-plot").hidden = false;
  $("inside-facts").textContent = "reading …";
  const opened = reading;
  opened.said = await ask("open", { url: source.file, container: source.container });
  offerNumbers(opened.said.numbers);
  const { unreadable } = opened.said;
  $("inside-unreadable").textContent = unreadable.map((it) => `${it.name} is not shown: ${it.reason}.`).join(" ");
}

function heard(waiting, { id, told, failed, isExpression, progress }) {
  if (progress !== undefined) { $("inside-facts").textContent = `read ${progress} …`; return; }
  if (failed === undefined) waiting.get(id).resolve(told);
  else waiting.get(id).reject(Object.assign(new Error(failed), { isExpression }));
  waiting.delete(id);
}
