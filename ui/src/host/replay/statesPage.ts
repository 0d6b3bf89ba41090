// The page of the development server that lists every state and shows the chosen one in a frame.
// The address names it, so that a reload returns to it.
import { addressOf, allStates, states } from "./states";

const nav = document.querySelector("nav")!;
const frame = document.querySelector("iframe")!;
const theme = document.querySelector<HTMLSelectElement>("#theme")!;

for (const [part, list] of Object.entries(states)) {
  const links = list.map(({ id, title }) => {
    const [item, link] = [document.createElement("li"), document.createElement("a")];
    [link.href, link.textContent] = [`#${id}`, title];
    item.append(link);
    return item;
  });
  const [heading, group] = [document.createElement("h2"), document.createElement("ul")];
  heading.textContent = part;
  group.append(...links);
  nav.append(heading, group);
}

const show = () => {
  const state = allStates.find(({ id }) => `#${id}` === location.hash) ?? allStates[0]!;
  for (const link of nav.querySelectorAll("a")) link.ariaCurrent = link.hash === `#${state.id}` ? "page" : null;
  frame.src = addressOf(state, theme.value);
};
addEventListener("hashchange", show);
theme.addEventListener("change", show);
show();
