// The defects of a page for people who see little, hear it read, or use no mouse. The value is a list of sentences.
(() => {
  const found = [];
  const shown = (element) => element.checkVisibility({ visibilityProperty: true });
  const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);
  const named = (element) => {
    const by = element.getAttribute("aria-labelledby");
    return (element.getAttribute("aria-label") || (by && document.getElementById(by)?.textContent) || element.textContent || element.title || "").trim();
  };
  const show = (element) => element.outerHTML.slice(0, 100);

  if (!document.documentElement.lang) found.push("the page has no language");
  if (!document.title.trim()) found.push("the page has no title");
  if (all("main").length !== 1) found.push("there is not one main part");
  for (const nav of all("nav")) if (!named(nav)) found.push(`a navigation without a name: ${show(nav)}`);

  let level = 0;
  for (const heading of all("h1, h2, h3, h4, h5, h6")) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) found.push(`a heading of level ${own} after level ${level}: ${show(heading)}`);
    if (!heading.textContent.trim()) found.push(`an empty heading: ${show(heading)}`);
    level = own;
  }
  if (all("h1").length !== 1) found.push("there is not one heading of level 1");

  for (const field of all("input:not([type=hidden]), select, textarea")) {
    const label = [...(field.labels ?? [])].some((label) => label.textContent.trim());
    if (!label && !field.getAttribute("aria-label")) found.push(`a field without a label: ${show(field)}`);
  }
  for (const control of all("a[href], button, summary")) if (!named(control)) found.push(`a control without a name: ${show(control)}`);
  for (const table of all("table")) {
    if (!table.querySelector("thead th")) found.push(`a table without headers: ${show(table)}`);
    for (const header of table.querySelectorAll("th")) if (!named(header)) found.push(`an empty header: ${show(header.parentElement)}`);
    const columns = table.querySelectorAll("thead th").length;
    for (const row of table.querySelectorAll("tbody tr")) if ([...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0) !== columns) found.push(`a row with other cells than headers: ${show(row)}`);
  }
  for (const image of all("img, svg")) {
    if (!image.getAttribute("aria-label") && !image.querySelector("title") && !image.alt) found.push(`a picture without a text: ${show(image)}`);
  }
  for (const element of all("[tabindex]")) if (element.tabIndex > 0) found.push(`an order of its own: ${show(element)}`);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place))) found.push(`the id ${id} twice`);
  for (const status of all(".status")) {
    const icon = status.querySelector("[aria-hidden=true]")?.textContent ?? "";
    if (!icon.trim() || !/[a-z]/.test(status.textContent.replace(icon, ""))) found.push(`a status by its colour alone: ${show(status)}`);
  }

  // Contrast, by the formula of WCAG 2: at least 4.5, and 3 for large text.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((part) => top[part] * top[3] + below[part] * (1 - top[3])).concat(1);
  const light = ([r, g, b]) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    let layers = [];
    for (let one = element; one; one = one.parentElement) {
      // A box of the diagram lies behind the texts of its group.
      const box = one instanceof SVGGElement ? one.querySelector(":scope > rect") : null;
      const style = getComputedStyle(box ?? one);
      const colour = rgba(box ? style.fill : style.backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const told = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !shown(element) || element.closest("script, option, :disabled, title")) continue;
    const style = getComputedStyle(element);
    let opacity = 1;
    for (let one = element; one; one = one.parentElement) opacity *= Number(getComputedStyle(one).opacity);
    const back = behind(element);
    const ink = rgba(element instanceof SVGElement ? style.fill : style.color);
    ink[3] *= opacity;
    const [a, b] = [light(over(ink, back)), light(back)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (contrast >= needed) continue;
    const text = `a contrast of ${contrast.toFixed(2)} in ${element.tagName.toLowerCase()}.${element.getAttribute("class") ?? ""} of .${element.parentElement.getAttribute("class") ?? ""}`;
    if (!told.has(text)) found.push(`${text}: ${walker.currentNode.data.trim().slice(0, 30)}`);
    told.add(text);
  }
  return found;
})()
