// Reads a container of a complete ROOT file, in a thread of its own: fetches ranges of the file, which WebAssembly decodes
// (crates/femtobarn-web). The page sends {id, ask, ...} and gets {id, told}, {id, failed}, or {id, progress} before these.
import { count as text } from "./numbers.js";
import { binned } from "./binning.js";
import { selected } from "./evaluation.js";
import { ExpressionError, fieldsOf, parsedPlot } from "./expression.js";

// Objects that are read at once, and the most numbers that are read of a field, and that are kept of all: 80 MB.
const STEP = 100000;
const NUMBERS_MAX = 10000000;

const NO_ANSWER = 1;
const fetched = { bytes: 0, requests: 0 };
let file = "";
let decoder = null;
let described = null;
// Columns of fields by their first object and their path, those used last at the end.
const held = new Map();
let plotted = null;
let newest = 0;

// Called by the decoder, which waits: ranges are pairs of an offset and a length.
function readRanges(pointer, count, into) {
  const pairs = new Float64Array(decoder.memory.buffer, pointer, 2 * count);
  const ranges = Array.from({ length: count }, (_, n) => [pairs[2 * n], pairs[2 * n + 1]]);
  const request = new XMLHttpRequest();
  request.open("GET", file, false);
  request.responseType = "arraybuffer";
  request.setRequestHeader("Range", `bytes=${ranges.map(([from, size]) => `${from}-${from + size - 1}`).join(",")}`);
  try { request.send(); } catch { return NO_ANSWER; }
  if (request.status !== 206) return request.status;
  const answer = new Uint8Array(request.response);
  fetched.bytes += answer.length;
  fetched.requests += 1;
  const memory = new Uint8Array(decoder.memory.buffer);
  const isMultipart = /^multipart\//.test(request.getResponseHeader("Content-Type"));
  let at = 0;
  for (const [, size] of ranges) {
    if (isMultipart) at = afterHead(answer, at);
    if (at + size > answer.length) return 502;
    memory.set(answer.subarray(at, at + size), into);
    at += size;
    into += size;
  }
  return 0;
}

// The head of a part ends with an empty line.
function afterHead(answer, from) {
  for (let at = from; at + 4 <= answer.length; at += 1) {
    if (answer[at] === 13 && answer[at + 1] === 10 && answer[at + 2] === 13 && answer[at + 3] === 10) return at + 4;
  }
  return answer.length;
}

function call(name, argument, ...numbers) {
  const bytes = new TextEncoder().encode(argument);
  const at = decoder.argument(bytes.length);
  new Uint8Array(decoder.memory.buffer, at, bytes.length).set(bytes);
  const failed = decoder[name](...numbers);
  if (failed) throw new Error(answerText());
}

function answerText() {
  return new TextDecoder().decode(new Uint8Array(decoder.memory.buffer, decoder.answer(), decoder.answer_length()));
}

async function open({ url, container }) {
  const program = await fetch("inside.wasm");
  if (!program.ok) throw new Error("the server was built without the program that reads files in a browser");
  const { instance } = await WebAssembly.instantiateStreaming(program, { worker: { read_ranges: readRanges } });
  decoder = instance.exports;
  file = url;
  const head = await fetch(url, { method: "HEAD" });
  if (!head.ok) throw new Error(`the server answered ${head.status}`);
  call("open", container, Number(head.headers.get("Content-Length")));
  described = JSON.parse(answerText());
  return described;
}

function objects({ first, count }) {
  call("objects", "", first, count);
  return JSON.parse(answerText());
}

// Counts one or two expressions, x and y, over the objects or items that the condition `where` selects. The values stay for further
// bins. A newer request ends the reading of an older one.
async function plot({ id, x, y, where, axes }) {
  newest = id;
  const key = JSON.stringify([x, y, where]);
  if (plotted?.key !== key) {
    const trees = parsedPlot({ x, y, where }, described.numbers);
    const columns = [trees.x, trees.y].filter(Boolean).map(() => []);
    plotted = { key, trees, columns, objects: 0, chosen: 0, size: 0, read: 0, next: 0, isRead: false };
  }
  while (!plotted.isRead) {
    readMore(plotted);
    postMessage({ id, progress: `${text(plotted.next)} of ${text(described.entries)} objects` });
    await new Promise((resolve) => setTimeout(resolve));
    if (newest !== id) return null;
  }
  const { columns, objects, chosen, size, next } = plotted;
  return { ...binned(columns, axes), objects, chosen, numbers: size, read: next, ...fetched };
}

function readMore(plot) {
  const end = Math.min(plot.next + STEP, described.entries);
  if (end > plot.next) {
    const columns = new Map(fieldsOf(plot.trees).map((path) => [path, column(path, plot.next, end)]));
    const [{ objects }] = columns.values();
    const found = selected(plot.trees, (path) => columns.get(path), objects);
    found.columns.forEach((values, at) => plot.columns[at].push(values));
    plot.objects += objects;
    // Items that are selected one by one are not counted as objects.
    plot.chosen = found.objects === null ? null : plot.chosen + found.objects;
    plot.size += found.columns[0].length;
    plot.read += Math.max(...Array.from(columns.values(), (it) => it.values.length));
  }
  plot.next = end;
  plot.isRead = end === described.entries || plot.read >= NUMBERS_MAX;
}

// The numbers of a field, and how many objects have them: deleted ones have none.
function column(path, first, end) {
  const key = `${first} ${path}`;
  const found = held.get(key) ?? readColumn(path, first, end);
  held.delete(key);
  held.set(key, found);
  let numbers = [...held.values()].reduce((sum, it) => sum + it.values.length, 0);
  for (const [oldest, { values }] of held) {
    if (numbers <= NUMBERS_MAX || oldest === key) break;
    held.delete(oldest);
    numbers -= values.length;
  }
  return found;
}

function readColumn(path, first, end) {
  call("numbers", path, first, end);
  const { buffer } = decoder.memory;
  const values = new Float64Array(buffer, decoder.answer(), decoder.answer_length()).slice();
  const offsets = new Uint32Array(buffer, decoder.offsets(), decoder.offsets_length()).slice();
  const isJagged = described.numbers.find((it) => it.path === path).lists.length > 0;
  const missing = decoder.missing() ? new Uint8Array(buffer, decoder.missing(), values.length).slice() : null;
  return { values, offsets: isJagged ? offsets : null, missing, objects: offsets.length - 1 };
}

const ANSWERS = { open, objects, plot };

addEventListener("message", async ({ data }) => {
  try {
    postMessage({ id: data.id, told: await ANSWERS[data.ask](data) });
  } catch (error) {
    postMessage({ id: data.id, failed: error.message, isExpression: error instanceof ExpressionError });
  }
});
