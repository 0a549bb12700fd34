// How a completion came about: positions appear in the order in which the model wrote them.

const MASK = "░";
const still = window.matchMedia("(prefers-reduced-motion: reduce)");

function replayView({ pieces, steps }) {
  const last = steps.reduce((most, step) => (step !== null && step > most ? step : most), 0);
  const written = steps.filter((step) => step !== null).length;
  const spans = pieces.map(() => make("span"));
  const canvas = make("div", { class: "replay", tabindex: "0", role: "region", "aria-label": "Text so far" }, spans);
  const slider = make("input", { type: "range", min: -1, max: last, step: 1, "aria-label": "Forward of the model" });
  const said = make("output");
  const button = make("button", { type: "button" }, "Play");
  let shown = null, timer = null;

  function show(now) {
    let done = 0;
    steps.forEach((step, i) => {
      const state = step === null ? "fixed" : step > now ? "masked" : step === now && now < last ? "fresh" : "";
      if (step !== null && step <= now) done++;
      if (shown !== null && spans[i].className === state) return;
      const wasText = shown !== null && spans[i].className !== "masked";
      spans[i].className = state;
      if (state === "masked") spans[i].textContent = MASK;
      else if (!wasText) spans[i].replaceChildren(...visible(pieces[i]));
    });
    shown = now;
    slider.value = now;
    slider.setAttribute("aria-valuetext", `forward ${now + 1} of ${last + 1}, ${done} of ${written} positions written`);
    said.textContent = `forward ${now + 1} of ${last + 1} · ${done} of ${written} positions`;
  }
  // What is being written stays in sight.
  function follow() {
    const fresh = spans[steps.findLastIndex((step) => step === shown)];
    const top = (fresh?.offsetTop ?? 0) - canvas.scrollTop;
    if (top < 0 || top > 0.8 * canvas.clientHeight) canvas.scrollTop += top - 0.4 * canvas.clientHeight;
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
  }
  function play() {
    if (timer !== null) return stop();
    if (shown >= last) show(-1);
    button.textContent = "Pause";
    // A whole replay takes at most half a minute; who wants less motion gets a page every second instead.
    const stride = still.matches ? Math.ceil((last + 1) / 8) : Math.ceil((last + 1) / 600);
    timer = setInterval(() => {
      if (!canvas.isConnected) return stop();
      show(Math.min(last, shown + stride));
      follow();
      if (shown >= last) stop();
    }, still.matches ? 1000 : Math.max(50, Math.min(200, 20000 / (last + 1))));
  }
  button.addEventListener("click", play);
  slider.addEventListener("input", () => {
    stop();
    show(Number(slider.value));
    follow();
  });
  show(last);
  return make("div", {}, make("div", { class: "player" }, button, slider, said), canvas);
}
