// Reads a container of a complete ROOT file, in a thread of its own: fetches ranges of the file, which WebAssembly decodes
// (crates/femtobarn-web). The page sends {id, ask, ...} and gets {id, told}, {id, failed}, or {id, progress} before these.
import { count as text } from "./numbers.js";
import { binned } from "./binning.js";

// Objects that are read at once, and the most numbers that are kept of a field: 80 MB.
const STEP = 100000;
const NUMBERS_MAX = 10000000;

const NO_ANSWER = 1;
const fetched = { bytes: 0, requests: 0 };
let file = "";
let decoder = null;
let described = null;
let field = { path: "" };
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

// The numbers of a field stay for further histograms. A newer request ends the reading of an older one.
async function histogram({ id, path, ...range }) {
  newest = id;
  if (field.path !== path || !field.isRead) {
    if (field.path !== path) field = { path, parts: [], objects: 0, size: 0, next: 0, isRead: false };
    while (!field.isRead) {
      readMore();
      postMessage({ id, progress: `${text(field.next)} of ${text(described.entries)} objects` });
      await new Promise((resolve) => setTimeout(resolve));
      if (newest !== id) return null;
    }
  }
  const { objects: read, size, next } = field;
  return { ...binned(field.parts, range), objects: read, numbers: size, read: next, ...fetched };
}

function readMore() {
  const end = Math.min(field.next + STEP, described.entries);
  if (end > field.next) {
    call("numbers", field.path, field.next, end);
    field.parts.push(new Float64Array(decoder.memory.buffer, decoder.answer(), decoder.answer_length()).slice());
    field.objects += decoder.offsets_length() - 1;
    field.size += field.parts.at(-1).length;
  }
  field.next = end;
  field.isRead = end === described.entries || field.size >= NUMBERS_MAX;
}

const ANSWERS = { open, objects, histogram };

addEventListener("message", async ({ data }) => {
  try {
    postMessage({ id: data.id, told: await ANSWERS[data.ask](data) });
  } catch (error) {
    postMessage({ id: data.id, failed: error.message });
  }
});
