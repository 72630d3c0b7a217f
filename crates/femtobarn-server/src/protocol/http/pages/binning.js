// Numbers into bins, and pairs of numbers into cells. A range is that of all finite numbers unless it is given; whole numbers have a
// bin each if they are few.

const BINS = 100;
const CELLS = 40;
// Up to here, half of an integer is a number, too.
const EXACT_MAX = 2 ** 52;
// Digits of the ends of a range.
const DIGITS = 12;
// The end of all ranges: the width of one, times its bins, is a number.
const END = 1e304;

// The counts of one or two columns, each in parts. `given` has the bins, low and high of each that are given. Cells are counted row
// by row, from the bottom.
export function binned(columns, given) {
  const sums = columns.map(summed);
  const axes = sums.map((it, at) => chosen(it, given[at] ?? {}, columns.length > 1 ? CELLS : BINS));
  const counts = new Float64Array(axes.reduce((product, axis) => product * axis.bins, 1));
  const told = { counts, axes, sums, below: 0, above: 0, outside: 0, invalid: 0 };
  columns[0].forEach((part, at) => {
    if (columns.length > 1) countPairs(told, part, columns[1][at]);
    else countNumbers(told, part);
  });
  return told;
}

function countNumbers(told, values) {
  const [axis] = told.axes;
  for (const value of values) {
    if (value < axis.low) told.below += 1;
    else if (value >= axis.high) told.above += 1;
    else if (Number.isNaN(value)) told.invalid += 1;
    else told.counts[binOf(axis, value)] += 1;
  }
}

function countPairs(told, first, second) {
  const [across, up] = told.axes;
  for (let at = 0; at < first.length; at += 1) {
    const [x, y] = [first[at], second[at]];
    if (Number.isNaN(x) || Number.isNaN(y)) told.invalid += 1;
    else if (x < across.low || x >= across.high || y < up.low || y >= up.high) told.outside += 1;
    else told.counts[binOf(up, y) * across.bins + binOf(across, x)] += 1;
  }
}

// The bin of a number in the range.
const binOf = ({ bins, low, high }, value) => Math.min(Math.floor((value - low) / (high - low) * bins), bins - 1);

// The mean and the sum of squares are updated number by number, so that large numbers do not cancel.
function summed(parts) {
  let [finite, mean, squares, least, greatest, isWhole] = [0, 0, 0, Infinity, -Infinity, true];
  for (const part of parts) {
    for (const value of part) {
      if (!Number.isFinite(value)) continue;
      finite += 1;
      const difference = value - mean;
      mean += difference / finite;
      squares += difference * (value - mean);
      if (value < least) least = value;
      if (value > greatest) greatest = value;
      isWhole &&= Number.isInteger(value);
    }
  }
  return { finite, mean, deviation: Math.sqrt(squares / finite), least, greatest, isWhole };
}

function chosen({ finite, least, greatest, isWhole }, given, bins) {
  if (!finite) [least, greatest] = [0, 1];
  const isFew = finite && isWhole && greatest - least < bins && Math.abs(least) < EXACT_MAX;
  if (isFew && given.low === undefined && given.high === undefined && given.bins === undefined) {
    return { bins: greatest - least + 1, low: least - 0.5, high: greatest + 0.5 };
  }
  const [before, beyond] = least < greatest ? around(least, greatest) : [least, greatest];
  const low = within(given.low ?? before);
  let high = within(given.high ?? beyond);
  if (!(high > low)) high = low + (Math.abs(low) || 1);
  return { bins: given.bins ?? bins, low, high };
}

const within = (number) => Math.min(Math.max(number, -END), END);

// A range of numbers of few digits, within which all numbers are, also as other programs compute them.
function around(least, greatest) {
  const unit = 10 ** (Math.ceil(Math.log10(Math.max(Math.abs(least), Math.abs(greatest)))) - DIGITS);
  const [low, high] = [least, greatest].map(rounded);
  return [low > least ? rounded(low - unit) : low, high > greatest ? high : rounded(high + unit)];
}

const rounded = (number) => Number(number.toPrecision(DIGITS));
