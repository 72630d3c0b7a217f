// Draws a histogram.
import { count, drawn } from "./elements.js";
import { real } from "./numbers.js";

const FRAME = { width: 1000, height: 260, left: 8, right: 8, top: 26, bottom: 24 };
const TICKS = 6;

export function drawHistogram(svg, name, { counts, low, high }) {
  const most = Math.max(1, ...counts);
  const [bottom, inner] = [FRAME.height - FRAME.bottom, FRAME.width - FRAME.left - FRAME.right];
  const x = (value) => FRAME.left + inner * (value - low) / (high - low);
  const y = (number) => bottom - (bottom - FRAME.top) * number / most;
  const edge = (bin) => low + (high - low) * bin / counts.length;
  const bars = Array.from(counts, (number, bin) => {
    const [from, to] = [x(edge(bin)), x(edge(bin + 1))];
    return drawn("rect", { class: "bar", x: from, width: to - from, y: y(number), height: bottom - y(number) },
      drawn("title", {}, `${real(edge(bin))} to ${real(edge(bin + 1))}: ${count(number)}`));
  });
  svg.setAttribute("aria-label", `Histogram of ${name}`);
  svg.replaceChildren(...bars, drawn("line", { class: "axis", x1: FRAME.left, x2: FRAME.left + inner, y1: bottom, y2: bottom }),
    drawn("text", { x: FRAME.left, y: 16 }, `${count(most)} at most`),
    drawn("text", { x: FRAME.width - FRAME.right, y: 16, class: "end name" }, name),
    ...ticks(low, high).flatMap((value) => [
      drawn("line", { class: "axis", x1: x(value), x2: x(value), y1: bottom, y2: bottom + 4 }),
      drawn("text", { x: Math.min(Math.max(x(value), 20), FRAME.width - 20), y: FRAME.height - 6, class: "middle" }, real(value)),
    ]));
}

// Round numbers in the range: multiples of 1, 2 or 5 times a power of ten.
function ticks(low, high) {
  const rough = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, n) => (first + n) * step);
}
