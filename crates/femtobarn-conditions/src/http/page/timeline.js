// A picture of all intervals: a row for each channel, a bar for each interval. However many intervals there
// are, a row costs as many searches as it has pixels.
"use strict";

const AXIS_HEIGHT = 24;
const LABEL_WIDTH = 56;
const ROWS_MAX = 40;

// The first interval of a channel that ends after a place.
function firstAfter(until, from, to, place) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (until[middle] <= place) from = middle + 1; else to = middle;
  }
  return from;
}

// The intervals of a channel in the loaded windows: one list for each window, in order.
function rowsOf(windows, channel) {
  const rows = [];
  for (const window of windows) {
    const at = window.channels.indexOf(channel);
    if (at >= 0) rows.push({ window, from: window.starts[at], to: window.starts[at + 1] });
  }
  return rows;
}

// The interval at a place of the axis, and where it ends; null in a gap.
function intervalAt(rows, place) {
  for (const { window, from, to } of rows) {
    const { since, until } = window.places;
    if (place < window.first || place >= window.end) continue;
    const at = firstAfter(until, from, to, place);
    if (at >= to || since[at] > place) return null;
    const { intervals } = window;
    return { end: until[at], since: intervals.since[at], until: intervals.until[at], entry: intervals.entry[at],
      digest: intervals.digest?.[at] };
  }
  return null;
}

class Timeline {
  constructor(canvas, { onMove, onPick }) {
    this.canvas = canvas;
    this.onMove = onMove;
    this.onPick = onPick;
    this.windows = [];
    this.others = null;
    this.axis = axisOf("time");
    this.all = [0, 1];
    this.range = [0, 1];
    this.first = 0;
    this.listen();
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  get channels() {
    const found = new Set();
    for (const window of [...this.windows, ...(this.others || [])]) window.channels.forEach((it) => found.add(it));
    return [...found].sort((a, b) => a - b);
  }

  // The visible windows of a series, and those of the version that it is compared with, if any.
  show(windows, others, axis) {
    Object.assign(this, { windows, others, axis });
    this.draw();
  }

  showRange(since, until) {
    const length = Math.max(until - since, this.axis.shortest);
    this.range = [since, since + length];
    this.draw();
    this.onMove(...this.range);
  }

  zoom(factor, at) {
    const [since, until] = this.range;
    const middle = at ?? (since + until) / 2;
    this.showRange(middle - (middle - since) * factor, middle + (until - middle) * factor);
  }

  move(part) {
    const by = (this.range[1] - this.range[0]) * part;
    this.showRange(this.range[0] + by, this.range[1] + by);
  }

  placeAt(x) {
    const width = this.canvas.clientWidth - LABEL_WIDTH;
    return this.range[0] + (x - LABEL_WIDTH) / width * (this.range[1] - this.range[0]);
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY / 400), this.placeAt(event.offsetX));
    }, { passive: false });
    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      dragged = { x: event.offsetX, range: this.range, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!dragged) return;
      const moved = event.offsetX - dragged.x;
      dragged.moved ||= Math.abs(moved) > 3;
      const [since, until] = dragged.range;
      const by = moved / (canvas.clientWidth - LABEL_WIDTH) * (until - since);
      if (dragged.moved) this.showRange(since - by, until - by);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (dragged && !dragged.moved) this.pick(event.offsetX, event.offsetY);
      dragged = null;
    });
    const keys = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      ArrowLeft: () => this.move(-0.25), ArrowRight: () => this.move(0.25), 0: () => this.showRange(...this.all),
      ArrowUp: () => this.scroll(-1), ArrowDown: () => this.scroll(1),
    };
    canvas.addEventListener("keydown", (event) => {
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  scroll(rows) {
    this.first = Math.max(0, Math.min(this.first + rows, this.channels.length - ROWS_MAX));
    this.draw();
  }

  pick(x, y) {
    const channel = this.channels.slice(this.first)[Math.floor((y - AXIS_HEIGHT) / this.rowHeight)];
    if (channel === undefined || x < LABEL_WIDTH) return;
    const place = this.placeAt(x);
    this.onPick(channel, place, intervalAt(rowsOf(this.windows, channel), place));
  }

  draw() {
    const { canvas } = this;
    const channels = this.channels.slice(this.first, this.first + ROWS_MAX);
    this.rowHeight = channels.length > 12 ? 14 : 26;
    const height = AXIS_HEIGHT + Math.max(1, channels.length) * this.rowHeight + 6;
    canvas.style.height = `${height}px`;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale));
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.clearRect(0, 0, canvas.clientWidth, height);
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(["ink", "dim", "line", "odd", "even", "changed"].map(
      (name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.drawAxis(context, height);
    this.changed = 0;
    channels.forEach((channel, row) => this.drawRow(context, channel, AXIS_HEIGHT + row * this.rowHeight));
    canvas.dataset.channels = channels.length;
    canvas.dataset.changed = this.changed;
  }

  drawRow(context, channel, top) {
    context.fillStyle = this.colours.dim;
    context.textAlign = "right";
    context.fillText(channel, LABEL_WIDTH - 8, top + this.rowHeight / 2);
    const rows = rowsOf(this.windows, channel);
    const others = this.others && rowsOf(this.others, channel);
    const width = this.canvas.clientWidth - LABEL_WIDTH;
    let x = 0;
    while (x < width) {
      // One bar from here to the end of the interval, or to the next pixel.
      const place = this.placeAt(LABEL_WIDTH + x);
      const found = intervalAt(rows, place);
      const other = others && intervalAt(others, place);
      const isChanged = others && found?.digest !== other?.digest;
      this.changed += isChanged ? 1 : 0;
      const per = (this.range[1] - this.range[0]) / width;
      const length = found && !others ? (found.end - place) / per : 1;
      const to = Math.min(width, x + Math.max(1, length));
      if (isChanged) context.fillStyle = this.colours.changed;
      else context.fillStyle = found && found.entry % 2 ? this.colours.odd : this.colours.even;
      if (found || isChanged) context.fillRect(LABEL_WIDTH + x, top + 2, to - x, this.rowHeight - 4);
      x = to;
    }
  }

  drawAxis(context, height) {
    const [since, until] = this.range;
    const width = this.canvas.clientWidth - LABEL_WIDTH;
    const [marks, step] = this.axis.marks(since, until, (until - since) / Math.max(2, width / 140));
    context.textAlign = "center";
    for (const at of marks) {
      const x = LABEL_WIDTH + (at - since) / (until - since) * width;
      context.fillStyle = this.colours.line;
      context.fillRect(x, AXIS_HEIGHT - 4, 1, height);
      context.fillStyle = this.colours.dim;
      context.fillText(this.axis.label(at, step), x, AXIS_HEIGHT / 2);
    }
  }
}
