// Numbers as texts, for the pages and their workers.

export const count = (number) => number.toLocaleString("en");

// A number of single precision has the fewest digits that give it back.
export function real(number) {
  if (typeof number !== "number" || Number.isInteger(number) && Math.abs(number) < 1e15) return `${number}`;
  if (Math.fround(number) === number) {
    for (let digits = 4; digits < 9; digits += 1) {
      const short = Number(number.toPrecision(digits));
      if (Math.fround(short) === number) return `${short}`;
    }
  }
  return `${Number(number.toPrecision(12))}`;
}
