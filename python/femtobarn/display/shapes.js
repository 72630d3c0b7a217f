// Numbers of a scene to bodies: helices, cones, towers, arrows. Lengths are in metres, z is along the beam.
"use strict";

const OUTSIDE = 1.35;
const HELIX_STEPS = 40;
const STRAIGHT_STEPS = 6;
const TURN_MAX = 2.4;
const TOWER_LENGTH = 0.55;

const direction = (phi, eta) => {
  const across = 1 / Math.cosh(eta);
  return new THREE.Vector3(Math.cos(phi) * across, Math.sin(phi) * across, Math.tanh(eta));
};

// Where a direction from the origin leaves a cylinder.
function reach({ radius, half_length: halfLength }, towards) {
  // A division by zero gives infinity, which the other one is less than.
  return Math.min(radius / Math.hypot(towards.x, towards.y), halfLength / Math.abs(towards.z));
}

// The points of a track: bent inside the cylinder, and straight from there on for `beyond` of its radius.
function helix(outline, { x, y, z, phi, cot, curvature }, beyond) {
  const points = [new THREE.Vector3(x, y, z)];
  const limit = Math.min(2.2 * outline.radius, TURN_MAX / Math.abs(curvature), (1.02 * outline.half_length) / Math.abs(cot));
  const step = limit / (Math.abs(curvature) * limit > 0.02 ? HELIX_STEPS : STRAIGHT_STEPS);
  const after = ({ x, y, z }, angle, length) =>
    new THREE.Vector3(x + Math.cos(angle) * length, y + Math.sin(angle) * length, z + cot * length);
  const isWithin = ({ x, y, z }, part) =>
    Math.hypot(x, y) < part * outline.radius && Math.abs(z) < part * outline.half_length;
  let angle = phi;
  for (let length = 0; length < limit; length += step) {
    const next = after(points.at(-1), angle - (curvature * step) / 2, step);
    if (!isWithin(next, 1)) break;
    points.push(next);
    angle -= curvature * step;
  }
  // What curls inside ends there.
  const rest = isWithin(points.at(-1), 0.8) ? step * 0.3 : (beyond * outline.radius) / Math.hypot(1, cot);
  return [...points, after(points.at(-1), angle, rest)];
}

function tube(points, thickness) {
  return new THREE.TubeGeometry(new THREE.CatmullRomCurve3(points), points.length - 1, thickness, 5);
}

// A soft jet ends inside, a hard one behind the calorimeters.
function coneLength(outline, { phi, eta, pt }) {
  return reach(outline, direction(phi, eta)) * (0.6 + (OUTSIDE - 0.6) * Math.min(1, pt / 80));
}

// A cone that is a circle in pseudorapidity and azimuth: its side, and the points around its rim.
function cone({ phi, eta }, radius, length) {
  const rim = Array.from({ length: 65 }, (_, index) => {
    const angle = (index / 64) * 2 * Math.PI;
    return direction(phi + radius * Math.sin(angle), eta + radius * Math.cos(angle)).multiplyScalar(length);
  });
  const side = rim.slice(1).flatMap((point, index) => [0, 0, 0, ...rim[index], ...point]);
  const body = new THREE.BufferGeometry();
  body.setAttribute("position", new THREE.Float32BufferAttribute(side, 3));
  return [body, rim];
}

// Places a box from the surface of the calorimeter, or from its own place, outwards; its length is its energy.
function tower(outline, { x, y, z, phi, eta }, length, width) {
  const towards = direction(phi, eta);
  const surface = () => towards.clone().multiplyScalar(1.03 * reach(outline, towards));
  const start = x === undefined ? surface() : new THREE.Vector3(x, y, z);
  const middle = start.addScaledVector(towards, length / 2);
  const turn = new THREE.Quaternion().setFromUnitVectors(new THREE.Vector3(0, 0, 1), towards);
  return new THREE.Matrix4().compose(middle, turn, new THREE.Vector3(width, width, length));
}

// An arrow across the beam, whose length grows with its momentum.
function arrow(outline, phi, pt) {
  const length = outline.radius * (0.45 + 0.85 * Math.min(1, pt / 150));
  const towards = new THREE.Vector3(Math.cos(phi), Math.sin(phi), 0);
  const end = towards.clone().multiplyScalar(length);
  const shaft = tube([new THREE.Vector3(), end], 0.012 * outline.radius);
  const head = new THREE.ConeGeometry(0.04 * outline.radius, 0.12 * outline.radius, 20);
  head.applyQuaternion(new THREE.Quaternion().setFromUnitVectors(new THREE.Vector3(0, 1, 0), towards));
  head.translate(...end);
  return [shaft, head, end];
}

// The tracker and the calorimeters as lines.
function outlineOf({ radius, half_length: halfLength }) {
  const points = [];
  const at = (r, part, z) => [r * Math.cos(2 * Math.PI * part), r * Math.sin(2 * Math.PI * part), z];
  const circle = (r, z) => {
    for (let step = 0; step < 64; step++) points.push(...at(r, step / 64, z), ...at(r, (step + 1) / 64, z));
  };
  for (const scale of [1, OUTSIDE]) {
    const [r, z] = [radius * scale, halfLength * scale];
    circle(r, -z);
    circle(r, z);
    for (let part = 0; part < 1; part += 1 / 12) points.push(...at(r, part, -z), ...at(r, part, z));
  }
  circle(radius, 0);
  points.push(0, 0, -1.6 * halfLength, 0, 0, 1.6 * halfLength);
  return new THREE.BufferGeometry().setAttribute("position", new THREE.Float32BufferAttribute(points, 3));
}
