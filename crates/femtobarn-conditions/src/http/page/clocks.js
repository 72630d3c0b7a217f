// The clocks of series as axes. A moment is a number as it is stored; a place is a number on the axis.
"use strict";

const SECOND = 1e9;
const DAY = 86400 * SECOND;
const RUN = 2 ** 32;
// The store writes values beyond these for the beginning of time and for no end.
const LIMIT = 2 ** 62;

const decimal = (smallest) => {
  const power = 10 ** Math.floor(Math.log10(smallest));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= smallest * 0.999999);
};

// Nanoseconds since 1970.
class TimeAxis {
  shortest = 1000;
  margin = 1e12;

  place(moment) { return moment; }

  label(place, step = 0) {
    const date = new Date(place / 1e6);
    if (isNaN(date)) return "";
    const text = date.toISOString();
    if (step >= DAY) return text.slice(0, 10);
    if (step >= 60 * SECOND) return `${text.slice(0, 10)} ${text.slice(11, 16)}`;
    return step >= SECOND ? text.slice(11, 19) : `${text.slice(0, 10)} ${text.slice(11, 23)}`;
  }

  // Round moments, and the distance between them, which is not below `smallest`.
  marks(since, until, smallest) {
    if (smallest > 14 * DAY) return [this.months(since, until, smallest / (30 * DAY)), 30 * DAY];
    const units = [1, 2, 5, 10, 15, 30].flatMap((n) => [n * SECOND, n * 60 * SECOND]);
    units.push(...[1, 2, 6, 12].map((n) => n * 3600 * SECOND), DAY, 2 * DAY, 7 * DAY, 14 * DAY);
    const step = smallest < SECOND ? decimal(smallest) : units.sort((a, b) => a - b).find((it) => it >= smallest);
    const places = [];
    for (let at = Math.ceil(since / step) * step; at < until; at += step) places.push(at);
    return [places, step];
  }

  months(since, until, smallest) {
    const step = [1, 2, 3, 6, 12].find((it) => it >= smallest) ?? 12 * decimal(smallest / 12);
    const first = new Date(since / 1e6);
    const places = [];
    for (let month = Math.ceil(first.getUTCMonth() / step) * step; ; month += step) {
      const at = Date.UTC(first.getUTCFullYear(), month) * 1e6;
      if (!(at < until)) return places;
      if (at >= since) places.push(at);
    }
  }
}

// A run, and as its fraction the luminosity block. All runs have the length of the longest one.
class RunAxis {
  shortest = 1e-3;
  margin = 1;
  blocks = 2;

  // Makes room for the blocks of these moments.
  fit(moments) {
    for (const moment of moments) {
      const block = ((moment % RUN) + RUN) % RUN;
      if (Math.abs(moment) < LIMIT && block >= this.blocks) this.blocks = 2 ** Math.ceil(Math.log2(block + 1));
    }
  }

  place(moment) {
    const run = Math.floor(moment / RUN);
    return run + Math.min((moment - run * RUN) / this.blocks, 1 - 1e-9);
  }

  label(place, step = 0) {
    const run = Math.floor(place + 1e-9);
    return step >= 1 ? `${run}` : `${run}:${Math.max(0, Math.round((place - run) * this.blocks))}`;
  }

  marks(since, until, smallest) {
    const step = smallest >= 0.5 ? decimal(Math.max(1, smallest)) : Math.max(1, 2 ** Math.ceil(Math.log2(smallest * this.blocks))) / this.blocks;
    const places = [];
    for (let at = Math.ceil(since / step) * step; at < until; at += step) places.push(at);
    return [places, step];
  }
}

const axisOf = (clock) => (clock === "run" ? new RunAxis() : new TimeAxis());
