// Numbers into bins. The range is that of all finite numbers unless it is given; whole numbers have a bin each if they are few.

const BINS = 100;
// Up to here, half of an integer is a number, too.
const EXACT_MAX = 2 ** 52;

export function binned(parts, { bins, low, high }) {
  const sums = summed(parts);
  const range = chosen(sums, { bins, low, high });
  const counts = new Float64Array(range.bins);
  const scale = range.bins / (range.high - range.low);
  let [below, above] = [0, 0];
  for (const part of parts) {
    for (const value of part) {
      if (value < range.low) below += 1;
      else if (value < range.high) counts[Math.min(Math.floor((value - range.low) * scale), range.bins - 1)] += 1;
      // The greatest number belongs to the last bin, where the range was not given.
      else if (value === range.high && high === undefined) counts[range.bins - 1] += 1;
      else if (value >= range.high) above += 1;
    }
  }
  const { finite, mean, deviation, invalid, least, greatest } = sums;
  return { ...range, counts, below, above, invalid, finite, mean, deviation, least, greatest };
}

// The mean and the sum of squares are updated number by number, so that large numbers do not cancel.
function summed(parts) {
  let [finite, invalid, mean, squares, least, greatest, isWhole] = [0, 0, 0, 0, Infinity, -Infinity, true];
  for (const part of parts) {
    for (const value of part) {
      if (Number.isNaN(value)) invalid += 1;
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
  return { finite, invalid, mean, deviation: Math.sqrt(squares / finite), least, greatest, isWhole };
}

function chosen({ finite, least, greatest, isWhole }, given) {
  if (!finite) [least, greatest] = [0, 1];
  const isFew = finite && isWhole && greatest - least < BINS && Math.abs(least) < EXACT_MAX;
  if (isFew && given.low === undefined && given.high === undefined && given.bins === undefined) {
    return { bins: greatest - least + 1, low: least - 0.5, high: greatest + 0.5 };
  }
  const low = given.low ?? least;
  let high = given.high ?? greatest;
  if (!(high > low)) high = low + (Math.abs(low) || 1);
  return { bins: given.bins ?? BINS, low, high };
}
