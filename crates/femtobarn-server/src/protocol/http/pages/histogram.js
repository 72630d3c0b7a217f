// Draws the count of numbers in each bin, or of pairs of numbers in each cell.
import { bottomAxis, fitting, frameOf, leftAxis } from "./axes.js";
import { count, drawn } from "./elements.js";
import { real } from "./numbers.js";

const HISTOGRAM = { height: 260, left: 8 };
const DENSITY = { height: 420, left: 60 };
const FAINTEST = 0.12;

const edge = ({ bins, low, high }, bin) => low + (high - low) * bin / bins;
const range = (axis, bin) => [bin, bin + 1].map((it) => (axis.text ?? real)(edge(axis, it))).join(" to ");

export function drawHistogram(svg, name, { counts, axes: [axis] }) {
  const most = counts.reduce((a, b) => Math.max(a, b), 1);
  const frame = frameOf(svg, HISTOGRAM.height, HISTOGRAM.left);
  const bottom = frame.bottomLine;
  const x = (value) => frame.left + frame.inner * (value - axis.low) / (axis.high - axis.low);
  const y = (number) => bottom - (bottom - frame.top) * number / most;
  const bars = Array.from(counts, (number, bin) => {
    const [from, to] = [x(edge(axis, bin)), x(edge(axis, bin + 1))];
    return drawn("rect", { class: "bar", x: from, width: to - from, y: y(number), height: bottom - y(number) },
      drawn("title", {}, `${range(axis, bin)}: ${count(number)}`));
  });
  show(svg, frame, `Histogram of ${name}`, most, name, [...bars, ...bottomAxis(axis, frame, x)]);
}

// The darkness of a cell grows with the square root of its count, so that single pairs are visible.
export function drawDensity(svg, name, nameOfSecond, { counts, axes: [across, up] }) {
  const most = counts.reduce((a, b) => Math.max(a, b), 1);
  const frame = frameOf(svg, DENSITY.height, DENSITY.left);
  const bottom = frame.bottomLine;
  const x = (value) => frame.left + frame.inner * (value - across.low) / (across.high - across.low);
  const y = (value) => bottom - (bottom - frame.top) * (value - up.low) / (up.high - up.low);
  const cells = [];
  counts.forEach((number, at) => {
    if (!number) return;
    const [column, row] = [at % across.bins, Math.floor(at / across.bins)];
    const [left, top] = [x(edge(across, column)), y(edge(up, row + 1))];
    cells.push(drawn("rect", { class: "cell", x: left, y: top, width: x(edge(across, column + 1)) - left, height: y(edge(up, row)) - top,
      opacity: FAINTEST + (1 - FAINTEST) * Math.sqrt(number / most) },
      drawn("title", {}, `${range(across, column)}, ${range(up, row)}: ${count(number)}`)));
  });
  show(svg, frame, `Pairs of ${name} and ${nameOfSecond}`, most, `${nameOfSecond} against ${name}`,
    [...cells, ...bottomAxis(across, frame, x), ...leftAxis(up, frame, y)]);
}

function show(svg, frame, label, most, title, parts) {
  svg.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
  svg.setAttribute("aria-label", label);
  svg.replaceChildren(...parts, drawn("text", { x: frame.left, y: 16 }, `${count(most)} at most`),
    drawn("text", { x: frame.width - frame.right, y: 16, class: "end name" }, fitting(title, frame)));
}
