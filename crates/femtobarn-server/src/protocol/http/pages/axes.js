// Axes of plots. An axis is {bins, low, high}, and has `text` if its numbers are shown in another form, such as times.
import { drawn } from "./elements.js";
import { real } from "./numbers.js";

const FRAME = { right: 8, top: 26, bottom: 24 };
const WIDTH = { least: 280, usual: 1000 };
const TICKS = 6;
// The width of a letter, and the part of a line that is left for other texts.
const [LETTER, BESIDE] = [8, 100];

// The frame of a drawing that is so high, and has room at its left. It is as wide as it is shown, so that letters keep their size.
export function frameOf(svg, height, left) {
  const width = Math.max(WIDTH.least, Math.round(svg.getBoundingClientRect().width) || WIDTH.usual);
  return { ...FRAME, width, height, left, bottomLine: height - FRAME.bottom, inner: width - left - FRAME.right };
}

// The axis at the bottom; `x` gives the places of numbers.
export function bottomAxis(axis, frame, x) {
  const y = frame.bottomLine;
  const within = (place) => Math.min(Math.max(place, frame.left + 12), frame.width - 20);
  return [drawn("line", { class: "axis", x1: frame.left, x2: frame.left + frame.inner, y1: y, y2: y }),
    ...ticksOf(axis, frame.inner).flatMap(({ value, text, anchor }) => [
      drawn("line", { class: "axis", x1: x(value), x2: x(value), y1: y, y2: y + 4 }),
      drawn("text", { x: anchor ? x(value) : within(x(value)), y: frame.height - 6, class: anchor ?? "middle" }, text),
    ])];
}

// The axis at the left.
export function leftAxis(axis, frame, y) {
  // A time is longer than there is room beside the axis.
  const place = (value, anchor) => anchor ? { x: frame.left + 6, y: y(value) + (anchor === "end" ? 14 : -6) }
    : { x: frame.left - 8, y: y(value) + 4, class: "end" };
  return [drawn("line", { class: "axis", x1: frame.left, x2: frame.left, y1: frame.top, y2: frame.bottomLine }),
    ...ticksOf(axis, WIDTH.usual).flatMap(({ value, text, anchor }) => [
      drawn("line", { class: "axis", x1: frame.left - 4, x2: frame.left, y1: y(value), y2: y(value) }),
      drawn("text", place(value, anchor), text),
    ])];
}

// A title that fits beside the other texts in its line.
export function fitting(title, { inner }) {
  const letters = Math.max(10, Math.floor((inner - BESIDE) / LETTER));
  return title.length > letters ? `${title.slice(0, letters - 1)}…` : title;
}

// The labels of an axis: its ends for times, otherwise round numbers, multiples of 1, 2 or 5 times a power of ten.
function ticksOf({ low, high, text }, room) {
  if (text) return [{ value: low, text: text(low), anchor: "start" }, { value: high, text: text(high), anchor: "end" }];
  const rough = (high - low) / Math.min(TICKS, room / BESIDE);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, n) => Number(((first + n) * step).toPrecision(12)))
    .map((value) => ({ value, text: real(value) }));
}
