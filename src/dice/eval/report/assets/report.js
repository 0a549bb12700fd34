// The list of problems: filter, sort, and what opens below each.

let data = null;

function problemView(problem) {
  const place = make("div");
  const choice = make("select", {}, problem.samples.map((one) => make("option", { value: one.n }, describe(one))));
  choice.value = problem.best;
  const draw = () => place.replaceChildren(...sampleView(problem, find(problem, Number(choice.value))));
  const move = (by) => {
    const next = choice.selectedIndex + by;
    if (next >= 0 && next < choice.options.length) choice.selectedIndex = next;
    draw();
  };
  choice.addEventListener("change", draw);
  draw();
  if (problem.samples.length === 1) return place;
  return make("div", {},
    make("div", { class: "picker" },
      make("label", {}, `Sample, of ${problem.samples.length}`, choice),
      make("button", { type: "button", onclick: () => move(-1) }, "Previous"),
      make("button", { type: "button", onclick: () => move(1) }, "Next")),
    place);
}

function prepare(problem) {
  const counts = new Map();
  for (const one of problem.samples) counts.set(one.status, (counts.get(one.status) ?? 0) + 1);
  problem.statuses = new Set(counts.keys());
  problem.correct = problem.samples.filter((one) => one.correct).length;
  problem.speed = Math.max(0, ...problem.samples.filter((one) => one.correct).map(fastest));
  const evidence = problem.samples.flatMap((one) => (one.evidence ?? []).map((each) => `${each.kind} ${textOf(each.message)}`));
  problem.search = [problem.stem, ...problem.statuses, ...evidence].join("\n").toLowerCase();
  const tags = [...counts].map(([status, count]) => make("span", {}, dot(status), `${problem.samples.length > 1 ? `${count} ` : ""}${words(status)}`));
  if (problem.speed) tags.push(make("span", {}, `best ${problem.speed.toFixed(2)}x`));
  const box = make("details", { class: "problem", id: `problem-${problem.level}-${problem.id}` },
    make("summary", {}, make("span", { class: "name" }, `L${problem.level} · `, visible(problem.stem)), make("span", { class: "tags" }, tags)));
  let built = false;
  box.addEventListener("toggle", () => {
    if (box.open && !built) box.append(make("div", { class: "body" }, problemView(problem)));
    built ||= box.open;
  });
  problem.box = box;
}

const ORDERS = {
  number: ["number", (a, b) => a.level - b.level || a.id - b.id],
  name: ["name", (a, b) => a.stem.replace(/^\d+_/, "").localeCompare(b.stem.replace(/^\d+_/, ""))],
  correct: ["most correct", (a, b) => b.correct / b.samples.length - a.correct / a.samples.length],
  wrong: ["least correct", (a, b) => a.correct / a.samples.length - b.correct / b.samples.length],
  speed: ["fastest", (a, b) => b.speed - a.speed],
};

function list() {
  const { problems } = data;
  problems.forEach(prepare);
  const option = ([value, text]) => make("option", { value }, text);
  const levels = [...new Set(problems.map((one) => one.level))];
  const statuses = [...new Set(problems.flatMap((one) => [...one.statuses]))].sort();
  const level = make("select", {}, [["", "all"], ...levels.map((one) => [one, `level ${one}`])].map(option));
  const status = make("select", {}, [["", "any"], ["+", "with a correct sample"], ["-", "without one"], ...statuses.map((one) => [one, words(one)])].map(option));
  const order = make("select", {}, Object.entries(ORDERS).map(([key, [text]]) => option([key, text])));
  const text = make("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  const count = make("p", { class: "small", role: "status" });
  const place = make("div");
  const draw = () => {
    const wanted = text.value.trim().toLowerCase();
    const fits = (one) =>
      (level.value === "" || one.level === Number(level.value)) &&
      (status.value === "" || (status.value === "+" && one.correct > 0) || (status.value === "-" && one.correct === 0) || one.statuses.has(status.value)) &&
      one.search.includes(wanted);
    const found = problems.filter(fits).sort(ORDERS[order.value][1]);
    count.textContent = `${found.length} of ${problems.length} problems`;
    place.replaceChildren(...found.map((one) => one.box));
  };
  for (const one of [level, status, order]) one.addEventListener("change", draw);
  text.addEventListener("input", draw);
  draw();
  document.getElementById("list").replaceChildren(
    make("div", { class: "controls" },
      make("label", {}, "Level", level), make("label", {}, "Status of a sample", status), make("label", {}, "Order", order),
      make("label", { class: "wider" }, "Search names, verdicts and evidence", text)),
    count, place);
  const jump = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target?.classList.contains("problem")) return;
    target.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", jump);
  jump();
}

async function unpack(block) {
  if (block.type === "application/json") return JSON.parse(block.textContent);
  const bytes = Uint8Array.from(atob(block.textContent), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function start() {
  const block = document.getElementById("data");
  if (block.type === "application/gzip" && !("DecompressionStream" in window)) {
    document.getElementById("wait").textContent = "This browser is too old to unpack the list of problems.";
    return;
  }
  data = await unpack(block);
  list();
}
start();
