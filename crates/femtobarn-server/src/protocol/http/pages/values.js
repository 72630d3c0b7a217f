// Values of objects for people: with the types of the class definition ("Class definitions" in docs/format.md) times are times, members
// of enumerations have their names, and links can be followed.
import { allFields } from "./classes.js";
import { element } from "./elements.js";
import { real } from "./numbers.js";

const TEXT_MAX = 100;
const NANOSECONDS = 1000000000n;
const DAY_MS = 86400000;

// How numbers of a field are written if they are times; undefined if they are none. Doubles do not hold the nanoseconds of our days.
export function timeText(fields, path) {
  let type = allFields(fields).find((it) => it.name === path)?.type;
  while (type?.list ?? type?.optional ?? type?.array) type = type.list ?? type.optional ?? type.array.of;
  return { datetime: (number) => time(BigInt(Math.round(number / 1000)) * 1000n), date: (number) => date(Math.floor(number)) }[type?.meaning?.is];
}

// A value on one line, as texts and elements; `linkTo` makes an element of a stored link, or null of one that leads nowhere.
export function written(value, type, linkTo) {
  const parts = [];
  let room = TEXT_MAX;
  for (const part of partsOf(value, type, linkTo)) {
    const text = part.textContent ?? part;
    // Links and times are not cut.
    parts.push(part === text ? text.slice(0, room) : part);
    room -= text.length;
    if (room < 0) return [...parts, " …"];
  }
  return parts;
}

// All links in a value, as they are stored.
export function linksIn(value, declared) {
  const type = present(declared);
  if (value === null || typeof value !== "object") return [];
  if (isLink(type)) return value.container ? [value] : [];
  if (Array.isArray(value)) return value.flatMap((it) => linksIn(it, itemOf(type)));
  return Object.entries(value).flatMap(([name, it]) => linksIn(it, memberOf(type, name)));
}

function* partsOf(value, declared, linkTo) {
  const type = present(declared);
  if (value === null) yield "none";
  else if (type?.meaning) yield* meant(value, type.meaning, linkTo);
  else if (isLink(type) && typeof value === "object") yield (value.container ? linkTo(value) : null) ?? "none";
  else if (Array.isArray(value)) {
    yield* joined("[", value.map((it) => [partsOf(it, itemOf(type), linkTo)]), "]");
  } else if (typeof value === "object") {
    yield* joined("{", Object.entries(value).map(([name, it]) => [[`${name}: `], partsOf(it, memberOf(type, name), linkTo)]), "}");
  } else yield real(value);
}

function* joined(before, items, after) {
  yield before;
  for (const [at, parts] of items.entries()) {
    if (at) yield ", ";
    for (const part of parts) yield* part;
  }
  yield after;
}

function* meant(value, meaning, linkTo) {
  const isNumber = typeof value === "number" || /^-?\d+$/.test(value);
  if (meaning.is === "datetime" && isNumber) yield unbroken(time(BigInt(value)));
  else if (meaning.is === "date" && isNumber) yield unbroken(date(Number(value)));
  else if (meaning.is === "enum") yield memberName(value, meaning);
  else if (meaning.is === "flag" && isNumber) yield flagNames(BigInt(value), meaning);
  else if (meaning.is === "element" && !meaning.members?.length && Number(value) >= 0) yield `${meaning.name}[${value}]`;
  else yield* partsOf(value, meaning.of, linkTo);
}

// Style keeps it on one line.
const unbroken = (text) => element("time", {}, text);

// Nanoseconds since 1970 in UTC, with the digits of the second that are not 0.
function time(nanoseconds) {
  const second = nanoseconds / NANOSECONDS - (nanoseconds % NANOSECONDS < 0n ? 1n : 0n);
  // The ends of an axis may be further away than JavaScript's years.
  if (Number.isNaN(new Date(Number(second) * 1000).getTime())) return `${real(Number(second))} s`;
  const rest = `${nanoseconds - second * NANOSECONDS}`.padStart(9, "0").replace(/0+$/, "");
  const shown = new Date(Number(second) * 1000).toISOString().replace("T", " ").replace(/\.\d+Z$/, "");
  return `${shown}${rest && `.${rest}`} UTC`;
}

// Days since 1970. JavaScript has fewer years than 32 bits of days.
function date(days) {
  const moment = new Date(days * DAY_MS);
  return Number.isNaN(moment.getTime()) ? `day ${days}` : moment.toISOString().replace(/T.*/, "");
}

const memberName = (value, { members }) => members.find(([, it]) => `${it}` === `${value}`)?.[0] ?? real(value);

function flagNames(value, { members }) {
  const bits = members.map(([name, it]) => [name, BigInt(it)]);
  const exact = bits.find(([, it]) => it === value);
  const set = exact ? [exact] : bits.filter(([, it]) => it && !(it & it - 1n) && value & it);
  const rest = set.reduce((left, [, it]) => left & ~it, value);
  return [...set.map(([name]) => name), ...rest || !set.length ? [`${rest}`] : []].join(" | ");
}

// The type of an optional value that is not missing.
const present = (type) => type?.optional ? present(type.optional) : type;
const isLink = (type) => Boolean(type?.link ?? type?.element_link);
const itemOf = (type) => type?.list ?? type?.array?.of ?? (type?.meaning?.of && itemOf(type.meaning.of));
const memberOf = (type, name) => type?.record?.fields.find((it) => it.name === name)?.type;
