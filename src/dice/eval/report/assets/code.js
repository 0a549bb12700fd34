// Code with line numbers, and the difference of two texts.

const MAX_LINES = 3000;
const WORDS = new Set(
  ("alignas asm auto await bool break case char class const constexpr continue def default del do double " +
    "elif else enum except extern False finally float float2 float4 for from goto half if import in inline " +
    "int int64_t is lambda long namespace None not or and pass raise return short signed sizeof size_t " +
    "static struct switch template this True try typedef typename uint32_t unsigned using void volatile " +
    "while with yield __device__ __forceinline__ __global__ __host__ __launch_bounds__ __restrict__ " +
    "__shared__ __syncthreads blockDim blockIdx gridDim threadIdx").split(" "),
);
const PYTHON = /#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[A-Za-z_]\w*|\d[\w.]*/g;
const CUDA = /\/\/[^\n]*|\/\*[^]*?\*\/|^[ \t]*#[ \t]*\w+|"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*|\d[\w.]*/gm;

// Python outside, CUDA inside triple quotes: [class, text] in order.
function tokens(text) {
  const found = [];
  text.split(/("""|''')/).forEach((part, i) => {
    if (i % 2) return found.push(["s", part]);
    const cuda = i % 4 === 2;
    let at = 0;
    for (const match of part.matchAll(cuda ? CUDA : PYTHON)) {
      const [word] = match;
      if (match.index > at) found.push(["", part.slice(at, match.index)]);
      at = match.index + word.length;
      found.push([kindOf(word, cuda), word]);
    }
    found.push(["", part.slice(at)]);
  });
  return found;
}

function kindOf(word, cuda) {
  if (/^["']/.test(word)) return "s";
  if (cuda ? /^\/[/*]/.test(word) : word.startsWith("#")) return "c";
  if (/^\s*#/.test(word)) return "w";
  if (/^\d/.test(word)) return "n";
  return WORDS.has(word) ? "w" : "";
}

function region(label, lines) {
  return make("pre", { class: "code", tabindex: "0", role: "region", "aria-label": label }, lines);
}

function codeView(text, label) {
  const all = text.split("\n");
  const shown = all.slice(0, MAX_LINES).join("\n");
  const lines = [[]];
  for (const [kind, part] of shown.length > 200000 ? [["", shown]] : tokens(shown)) {
    part.split("\n").forEach((piece, i) => {
      if (i) lines.push([]);
      if (piece) lines[lines.length - 1].push(kind ? make("span", { class: kind }, visible(piece)) : visible(piece));
    });
  }
  const nodes = lines.map((line, i) => make("span", { class: "line", "data-n": i + 1 }, line.flat()));
  const view = region(label, nodes);
  if (all.length <= MAX_LINES) return view;
  return make("div", {}, view, make("p", {}, `${all.length - MAX_LINES} more lines are not shown.`));
}

// Longest common subsequence between equal ends: ["=" | "-" | "+", line, number before, number after].
function difference(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const n = a.length - head - tail, m = b.length - head - tail;
  const rows = [];
  for (let i = 0; i < head; i++) rows.push(["=", a[i], i + 1, i + 1]);
  let i = 0, j = 0;
  if (n * m <= 9e6) {
    const width = m + 1, best = new Uint16Array((n + 1) * width);
    for (let x = n - 1; x >= 0; x--)
      for (let y = m - 1; y >= 0; y--)
        best[x * width + y] =
          a[head + x] === b[head + y]
            ? best[(x + 1) * width + y + 1] + 1
            : Math.max(best[(x + 1) * width + y], best[x * width + y + 1]);
    while (i < n && j < m) {
      const x = head + i, y = head + j;
      if (a[x] === b[y]) rows.push(["=", a[x], x + 1, y + 1]), i++, j++;
      else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) rows.push(["-", a[x], x + 1, null]), i++;
      else rows.push(["+", b[y], null, y + 1]), j++;
    }
  }
  for (; i < n; i++) rows.push(["-", a[head + i], head + i + 1, null]);
  for (; j < m; j++) rows.push(["+", b[head + j], null, head + j + 1]);
  for (let k = tail; k > 0; k--) rows.push(["=", a[a.length - k], a.length - k + 1, b.length - k + 1]);
  return rows;
}

function differenceView(before, after, label) {
  const rows = difference(before, after).slice(0, 2 * MAX_LINES);
  const near = new Set();
  rows.forEach(([kind], i) => {
    if (kind !== "=") for (let k = i - 3; k <= i + 3; k++) near.add(k);
  });
  const nodes = [];
  let skipped = 0;
  const gap = () => {
    if (skipped) nodes.push(make("span", { class: "line two gap", "data-n": "" }, `… ${skipped} equal lines`));
    skipped = 0;
  };
  rows.forEach(([kind, line, left, right], i) => {
    if (!near.has(i)) return skipped++;
    gap();
    const number = `${String(left ?? "").padStart(4)} ${String(right ?? "").padStart(4)}`;
    const tag = { "=": "span", "-": "del", "+": "ins" }[kind];
    const name = { "=": "line two", "-": "line two del", "+": "line two add" }[kind];
    nodes.push(make(tag, { class: name, "data-n": number }, kind === "=" ? "  " : `${kind} `, visible(line)));
  });
  gap();
  return region(label, nodes);
}
