// One sample: verdict, evidence, timing, code, difference to another, replay.

const MADE_BY = {
  custom: "made by its own kernels", mixed: "made by its kernels and PyTorch",
  library: "made by PyTorch or a library, called from C++", pytorch: "made by PyTorch, called from Python",
};
const NVCC = {
  compiled: "nvcc compiled it", failed: "nvcc rejected it",
  unsupported: "nvcc check not possible for this source", not_available: "not compiled by nvcc",
};
const OVER = { eager: "PyTorch eager", compile: "torch.compile" };
const textOf = (index) => (index === undefined || index === null ? null : data.texts[index]);
const find = (problem, n) => problem.samples.find((one) => one.n === n);

function describe(sample) {
  const same = sample.same_as === undefined ? "" : `, same as ${sample.same_as}`;
  const speed = sample.speedups ? `, ${fastest(sample).toFixed(2)}x` : "";
  return `${sample.n}: ${words(sample.status)}${speed}${same}`;
}

const fastest = (sample) => (sample.speedups ? Math.max(...Object.values(sample.speedups)) : 0);

function folded(title, build, open = false) {
  const box = make("details", { open }, make("summary", {}, title));
  let built = false;
  const fill = () => {
    if (box.open && !built) box.append(...[build()].flat(Infinity));
    built ||= box.open;
  };
  box.addEventListener("toggle", fill);
  fill();
  return box;
}

function table(rows, header) {
  const head = make("thead", {}, make("tr", {}, header.map((one) => make("th", { scope: "col" }, one))));
  const body = rows.map(([name, ...cells]) =>
    make("tr", {}, make("th", { scope: "row" }, name), cells.map((cell) => make("td", {}, cell))));
  return make("div", { class: "scroll", tabindex: "0" }, make("table", {}, head, make("tbody", {}, body)));
}

function timingView(timing) {
  const row = (name, time, ratio) =>
    [name, microseconds(time.median_us), `${microseconds(time.p10_us)}–${microseconds(time.p90_us)}`, microseconds(time.clock_us), ratio];
  const rows = [row("candidate", timing.runtime, "")];
  for (const [over, time] of Object.entries(timing.baselines)) {
    const one = timing.speedups.find((each) => each.over === over);
    const ratio = one ? `${Number(one.value).toFixed(2)}x (${Number(one.low).toFixed(2)}–${Number(one.high).toFixed(2)})` : "—";
    rows.push(row(OVER[over] ?? over, time, ratio));
  }
  const arithmetic = timing.tflops ? `, ${digits(timing.tflops)} of ${digits(timing.peak_tflops)} TFLOP/s` : "";
  return [
    make("h4", {}, "Time of a call"),
    timing.refused === null ? null : make("p", { class: "banner stop" }, "This time does not count: ", visible(timing.refused)),
    table(rows, ["of", "median", "80 % of calls", "second clock", "speedup"]),
    make("p", { class: "small" }, `${timing.gpu}; ${timing.runtime.calls} calls; reaches ${digits(timing.gbps)} of ${digits(timing.peak_gbps)} GB/s${arithmetic}.`),
    timing.notes.map((note) => make("p", { class: "small" }, visible(note))),
  ];
}

function verdictView(sample) {
  const about = [
    MADE_BY[sample.attribution], sample.backend === "simt" ? NVCC[sample.nvcc] : sample.backend && "on a GPU",
    sample.build_s !== undefined && `built in ${seconds(sample.build_s)}`,
    sample.run_s !== undefined && `ran in ${seconds(sample.run_s)}`,
    sample.matched && "its outputs matched: a check of outputs alone would call it correct",
    sample.runtime_us !== undefined && `${microseconds(sample.runtime_us)} a call`,
    !sample.timing && sample.speedups && Object.entries(sample.speedups).map(([over, x]) => `${x.toFixed(2)}x ${OVER[over] ?? over}`).join(", "),
  ].filter(Boolean);
  const evidence = (sample.evidence ?? []).map((one) =>
    make("li", {}, make("code", {}, one.kind), make("p", { class: "message" }, visible(textOf(one.message))),
      Object.keys(one.details).length
        ? folded("details", () => make("pre", { class: "code", tabindex: "0" }, visible(JSON.stringify(one.details, null, 1)))) : null));
  return [
    make("p", {}, dot(sample.status), make("strong", {}, words(sample.status)), about.length ? ` – ${about.join(", ")}` : ""),
    sample.error === undefined ? null : make("p", { class: "message" }, "The machine failed: ", visible(textOf(sample.error))),
    evidence.length ? make("ul", { class: "evidence" }, evidence) : null,
    sample.timing ? timingView(sample.timing) : null,
    (sample.notes ?? []).length
      ? folded("Notes of the judge", () => make("ul", { class: "small" }, sample.notes.map((note) => make("li", {}, visible(textOf(note)))))) : null,
  ].flat(Infinity);
}

function generationView(sample) {
  const one = sample.generation;
  if (!one) return null;
  const parts = [
    one.completion_tokens !== undefined && `${one.completion_tokens} tokens`, one.forwards && `${one.forwards} forwards`,
    one.seconds !== undefined && seconds(one.seconds), one.cost_usd !== undefined && `$${digits(one.cost_usd)}`,
    one.finish_reason && `ended by ${one.finish_reason}`, one.prompt_tokens && `prompt of ${one.prompt_tokens} tokens`, `seed ${one.seed}`,
  ].filter(Boolean);
  return make("p", { class: "small" }, `Written: ${parts.join(", ")}.`);
}

function sampleView(problem, sample) {
  const same = sample.same_as === undefined ? undefined : find(problem, sample.same_as);
  const judged = same ? { ...same, n: sample.n, status: sample.status, error: sample.error } : sample;
  const code = textOf(sample.code), raw = textOf(sample.text);
  const parts = [
    same ? make("p", {}, `Its code is that of sample ${same.n}, which was judged once: `) : null,
    ...verdictView(judged), generationView(sample),
    sample.message === undefined ? null : make("p", { class: "message" }, visible(textOf(sample.message))),
  ];
  if (code !== null) parts.push(folded("Code", () => codeView(code, `Code of sample ${sample.n}`), true));
  else if (raw !== null) parts.push(folded("Completion (no code was found in it)", () => codeView(raw, "Completion"), true));
  else if (sample.generation && !sample.message) parts.push(make("p", { class: "small" }, "Its code is not in this file; the run's folder has it."));
  if (code !== null) {
    const others = problem.samples.filter((one) => one.code !== undefined && one.code !== sample.code);
    if (others.length) parts.push(folded("Difference to another sample", () => compareView(problem, sample, others)));
    else if (problem.samples.length > 1) parts.push(make("p", { class: "small" }, "No other sample has other code in this file."));
  }
  if (sample.replay) parts.push(folded("Replay of the denoising", () => replayView(sample.replay)));
  else if (sample.replay_left_out) parts.push(make("p", { class: "small" }, "Its denoising is left out of this file."));
  return parts.filter((one) => one !== null);
}

function compareView(problem, sample, others) {
  const options = others.map((one) => make("option", { value: one.n }, describe(one)));
  const choice = make("select", {}, options);
  const place = make("div");
  const draw = () => {
    const other = find(problem, Number(choice.value));
    place.replaceChildren(differenceView(textOf(other.code), textOf(sample.code), `Difference of samples ${other.n} and ${sample.n}`));
  };
  choice.addEventListener("change", draw);
  draw();
  return [make("div", { class: "picker" }, make("label", {}, `From which sample to ${sample.n}`, choice)), place];
}
