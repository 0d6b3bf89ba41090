// What only a pointer does: the zoom of the charts by wheel, drag and double click. And what lies
// under it must not move.
import { expect, test } from "@playwright/test";

test("zooms the charts by wheel, drag and double click", async ({ page }) => {
  await page.goto("/?at=240&speed=0#/run/demo");
  await page.locator("body[data-ready] #open-changes").waitFor();
  const { x, y, width } = (await page.locator(".glass").boundingBox())!;
  // The plots lie between their axis and their names.
  const plot = { left: x + 40, width: width - 40 - 148 };
  const at = (share: number) => [plot.left + share * plot.width, y + 120] as const;
  const shown = () => page.evaluate(() => JSON.parse(localStorage.getItem("ebb.ranges") ?? "[]") as [string, { follow: boolean; fromMs?: number; toMs?: number }][]).then((all) => all.find(([run]) => run === "demo")?.[1]);
  const seconds = async () => {
    const span = await shown();
    return span?.follow === false ? [span.fromMs!, span.toMs!].map((ms) => Math.round(ms / 1000)) : "live";
  };
  const follows = page.locator("#follow");
  await expect(follows).toHaveAttribute("aria-pressed", "true");

  // The wheel zooms around the pointer: a minute from the left stays where it is.
  await page.mouse.move(...at(0.25));
  await page.mouse.wheel(0, -60);
  await expect(follows).toHaveAttribute("aria-pressed", "false");
  const [from, to] = (await seconds()) as number[];
  expect(to! - from!).toBeLessThan(200);
  expect(Math.abs(from! + (to! - from!) / 4 - 60)).toBeLessThanOrEqual(1);
  await page.mouse.wheel(0, 60);
  await expect.poll(seconds).toBe("live");

  // A drag shows what it covers.
  await page.mouse.move(...at(0.5));
  await page.mouse.down();
  await page.mouse.move(...at(0.6));
  await expect(page.locator(".brush")).toBeVisible();
  await page.mouse.move(...at(0.75));
  await page.mouse.up();
  await expect.poll(seconds).toEqual([120, 180]);
  await expect(page.locator(".clock")).toHaveText("3:00");

  await page.mouse.dblclick(...at(0.4));
  await expect.poll(seconds).toBe("live");
  await expect(follows).toHaveAttribute("aria-pressed", "true");
  await expect(page.locator(".clock")).toHaveText("now 4:00");
});

for (const [folder, last] of [["demo", "#first-samples li:nth-child(8) img"], ["texts", "#first-samples li:nth-child(3)"]]) {
  test(`the plan of ${folder} stays where it is while its samples are loaded`, async ({ page }) => {
    await page.addInitScript(() => {
      const seen = ((window as unknown as { places: Set<string> }).places = new Set<string>());
      const look = () => {
        const tops = ["#show-data", "#class-list", "#setting-epochs"].map((part) => document.querySelector(part)?.getBoundingClientRect().top);
        if (tops.every((top) => top !== undefined)) seen.add(tops.join());
        requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    });
    await page.goto(`/?#/inspection/${folder}`);
    await page.locator(last!).waitFor();
    expect(await page.evaluate(() => [...(window as unknown as { places: Set<string> }).places])).toHaveLength(1);
  });
}
