// The charts as they are shown, as a picture: the canvases, and the titles and names beside them.
import { t } from "../strings/t";

/** A piece of text, and where it is. */
interface Line {
  text: string;
  left: number;
  middle: number;
  style: CSSStyleDeclaration;
}

/** The texts of the charts, without those of buttons and of the cursor's box. */
const lines = (panels: HTMLElement, box: DOMRect): Line[] => {
  const walker = document.createTreeWalker(panels, NodeFilter.SHOW_TEXT);
  const found: Line[] = [];
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const text = node.textContent?.trim();
    const parent = node.parentElement;
    if (!text || !parent || parent.closest("button, .box, .visually-hidden")) continue;
    range.selectNodeContents(node);
    const { left, top, width, height } = range.getBoundingClientRect();
    if (width > 0) found.push({ text, left: left - box.left, middle: top + height / 2 - box.top, style: getComputedStyle(parent) });
  }
  return found;
};

/** The colored keys beside the names. */
const drawKeys = (ctx: CanvasRenderingContext2D, panels: HTMLElement, box: DOMRect) => {
  for (const key of panels.querySelectorAll<HTMLElement>("li > i")) {
    const { left, top, width, height } = key.getBoundingClientRect();
    const { backgroundColor, borderTopColor, borderTopWidth } = getComputedStyle(key);
    ctx.fillStyle = parseFloat(borderTopWidth) > 0 ? borderTopColor : backgroundColor;
    if (width > 0) ctx.fillRect(left - box.left, top - box.top, width, Math.max(height, 2));
  }
};

/** `panels` is the element that contains all panels. Returns a PNG. */
export const picture = async (panels: HTMLElement, background: string): Promise<ArrayBuffer> => {
  const box = panels.getBoundingClientRect();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.round(box.width * devicePixelRatio), Math.round(box.height * devicePixelRatio)];
  const ctx = canvas.getContext("2d")!;
  ctx.scale(devicePixelRatio, devicePixelRatio);
  ctx.fillStyle = background;
  ctx.fillRect(0, 0, box.width, box.height);
  for (const drawn of panels.querySelectorAll("canvas")) {
    const { left, top, width, height } = drawn.getBoundingClientRect();
    if (width > 0) ctx.drawImage(drawn, left - box.left, top - box.top, width, height);
  }
  drawKeys(ctx, panels, box);
  ctx.textBaseline = "middle";
  for (const { text, left, middle, style } of lines(panels, box)) {
    ctx.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    ctx.fillStyle = style.color;
    ctx.fillText(text, left, middle);
  }
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
  if (!blob) throw new Error(t("The charts could not be drawn as a picture. Export the report instead."));
  return blob.arrayBuffer();
};
