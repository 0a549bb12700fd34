// Building the page out of text. Nothing here parses markup: what candidates wrote can only become text.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined));
  return node;
}

function dot(status) {
  const known = data.kinds.includes(status);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "dot");
  svg.setAttribute("viewBox", "0 0 10 10");
  svg.setAttribute("aria-hidden", "true");
  const circle = document.createElementNS(SVG, "circle");
  for (const name of ["cx", "cy", "r"]) circle.setAttribute(name, "5");
  circle.setAttribute("class", known ? `k-${status.replaceAll(" ", "_")}` : "k-other");
  svg.append(circle);
  return svg;
}

// Characters that a reader cannot see, or that reorder what is seen.
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/;

function visible(text) {
  if (!ODD.test(text)) return [text];
  const parts = [];
  let plain = "";
  for (const character of text) {
    if (ODD.test(character)) {
      const number = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      parts.push(plain, make("span", { class: "odd" }, `U+${number}`));
      plain = "";
    } else plain += character;
  }
  parts.push(plain);
  return parts;
}

const words = (status) => status.replaceAll("_", " ");
const digits = (value, unit = "") =>
  `${Math.abs(value) >= 999.5 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3))}${unit}`;
const microseconds = (value) => (value < 999.5 ? digits(value, " µs") : digits(value / 1e3, " ms"));
const seconds = (value) => digits(value, " s");
