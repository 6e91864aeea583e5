"use strict";
(async () => {
  const nonce = document.currentScript.nonce; // gone after the first await
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let node = target; node; node = node.parentElement) {
      if (node instanceof HTMLDetailsElement) node.open = true;
    }
    if (!target) return;
    target.scrollIntoView();
    const summary = target.querySelector(":scope > summary");
    if (summary) summary.focus({ preventScroll: true });
  };
  addEventListener("hashchange", reveal);
  // A link to where we already are changes no hash, and the step may have been closed since.
  addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a");
    if (link && link.getAttribute("href") === location.hash) reveal();
  });
  reveal();

  const { version, every } = document.body.dataset;
  if (version) {
    const place = sessionStorage.getItem("place");
    if (place) {
      const { open, top } = JSON.parse(place);
      sessionStorage.removeItem("place");
      const all = [...document.querySelectorAll("details")];
      all.forEach((one, index) => { one.open ||= open.includes(one.id || index); });
      scrollTo(0, top);
    }
    const look = async () => {
      try {
        const news = await (await fetch("state")).json();
        if (String(news.version) !== version) {
          const open = [...document.querySelectorAll("details")].flatMap((one, index) => (one.open ? [one.id || index] : []));
          sessionStorage.setItem("place", JSON.stringify({ open, top: scrollY }));
          location.reload();
          return;
        }
        document.getElementById("live").textContent = "following the run";
      } catch {
        document.getElementById("live").textContent = "the server does not answer; this is the last state";
      }
      setTimeout(look, 1000 * Number(every));
    };
    setTimeout(look, 1000 * Number(every));
  }

  const plots = [...document.querySelectorAll("[data-figure]")];
  const packed = document.getElementById("plotly");
  const undrawn = () => plots.forEach((plot) => {
    plot.classList.add("undrawn");
    plot.textContent = "This browser cannot unpack the figure; its numbers are below.";
  });
  if (!packed || !plots.length) return;
  if (!("DecompressionStream" in globalThis)) return undrawn();

  const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.nonce = nonce;
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
  if (!globalThis.Plotly) return undrawn();

  const specs = JSON.parse(document.getElementById("figures").textContent);
  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: color("--line"), zerolinecolor: color("--line"), linecolor: color("--line") };
    for (const plot of plots) {
      const { data, layout } = specs[plot.dataset.figure];
      const themed = {
        margin: { l: 60, r: 16, t: 28, b: 48 },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: color("--ink"), family: "system-ui, sans-serif" },
        colorway: ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"].map(color),
        modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--soft"), activecolor: color("--accent") },
        legend: { orientation: "h", y: -0.22, yanchor: "top" },
        ...layout,
        xaxis: { ...axis, ...layout.xaxis },
        yaxis: { ...axis, ...layout.yaxis },
      };
      const drawn = data.map((trace) => (trace.type === "heatmap"
        ? { ...trace, colorscale: [[0, color("--card")], [1, color("--c1")]] } : trace));
      const config = { responsive: true, displaylogo: false, displayModeBar: "hover", toImageButtonOptions: { format: "svg" } };
      globalThis.Plotly.react(plot, drawn, themed, config);
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
