"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // Sorting. Reference rows stay on top; what has no number stays at the bottom, either way.
  function sortBy(table, place, ascending) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const pinned = rows.filter((row) => row.classList.contains("reference"));
    const others = rows.filter((row) => !row.classList.contains("reference"));
    const numeric = others.some((row) => row.cells[place].dataset.sort !== undefined);
    const key = (row) => {
      const cell = row.cells[place];
      if (!numeric) return cell.textContent.trim();
      return cell.dataset.sort === undefined ? null : Number(cell.dataset.sort);
    };
    others.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      const order = numeric ? x - y : x.localeCompare(y);
      return ascending ? order : -order;
    });
    body.append(...pinned, ...others);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      const first = table.tBodies[0].querySelector(`tr:not(.reference) td:nth-child(${place + 1})`);
      if (first && first.classList.contains("number")) head.dataset.kind = "number";
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const higher = button.querySelector(".arrow")?.title.startsWith("higher");
        const before = head.getAttribute("aria-sort");
        const ascending = before ? before === "descending" : !higher;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        sortBy(table, place, ascending);
      });
    });
  }

  // A touch screen has no hover: a tap shows a cell's explanation at the foot of the page.
  const hint = document.getElementById("hint");
  document.addEventListener("click", (event) => {
    const cell = event.target.closest("td[title]");
    hint.hidden = cell === null;
    hint.textContent = cell === null ? "" : cell.title;
  });

  // Charts are drawn when they come into view, in the colours of the page.
  const figures = [...document.querySelectorAll("figure")];
  function draw(figure) {
    if (typeof Plotly === "undefined" || figure.hidden) return;
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const line = style.getPropertyValue("--line").trim();
    const source = figure.querySelector("script").textContent;
    const plot = JSON.parse(source.replaceAll("\"@ink\"", JSON.stringify(ink)));
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
    const layout = {
      ...plot.layout,
      xaxis: { ...axis, ...plot.layout.xaxis },
      yaxis: { ...axis, ...plot.layout.yaxis },
      font: { color: ink, size: 11 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 48, r: 8, t: 8, b: 40 },
      legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom" },
      hovermode: "closest",
    };
    const div = figure.querySelector(".plot");
    Plotly.react(div, plot.data, layout, { responsive: true, displayModeBar: false });
    figure.dataset.drawn = "yes";
  }
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        watcher.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, { rootMargin: "400px" });
  figures.forEach((figure) => watcher.observe(figure));
  dark.addEventListener("change", () => {
    figures.filter((figure) => figure.dataset.drawn).forEach(draw);
  });

  // Filters.
  const member = document.getElementById("member");
  const search = document.getElementById("search");
  function filter() {
    const wanted = search.value.trim().toLowerCase();
    for (const item of document.querySelectorAll("[data-member]")) {
      const mine = item.dataset.member;
      const other = member.value !== "" && mine !== "" && mine !== member.value;
      const isRow = item.tagName === "TR" && !item.classList.contains("reference");
      const unlike = isRow && wanted !== "" && !item.textContent.toLowerCase().includes(wanted);
      item.hidden = other || unlike;
    }
    figures.filter((figure) => !figure.hidden && !figure.dataset.drawn)
      .forEach((figure) => { watcher.unobserve(figure); watcher.observe(figure); });
  }
  member.addEventListener("change", filter);
  search.addEventListener("input", filter);
})();
