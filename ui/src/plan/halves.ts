// A long name in two: where there is little room the first loses its end, so that names which differ at either end stay apart.
const LONG = 18;
const END = 9;

export const halves = (name: string): [string, string] => {
  const letters = [...name];
  return letters.length > LONG ? [letters.slice(0, -END).join(""), letters.slice(-END).join("")] : [name, ""];
};
