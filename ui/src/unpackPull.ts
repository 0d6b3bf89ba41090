// The bytes of a pull: the length of the header (u32), the header as JSON, zeros up to a multiple
// of 8, 64-bit floats. Numbers are little endian. `PullHeader` describes the same format.
import type { PullHeader } from "./types";

export interface Pull {
  header: PullHeader;
  /** The array of this name; empty if the pull has none. */
  array(name: string): Float64Array;
}

const none = new Float64Array(0);

export const unpack = (buffer: ArrayBuffer): Pull => {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as PullHeader;
  const start = Math.ceil((4 + length) / 8) * 8;
  const arrays = new Map(header.arrays.map((a) => [a.name, new Float64Array(buffer, start + a.offset * 8, a.len)]));
  return { header, array: (name) => arrays.get(name) ?? none };
};

/** For the replay host and tests; the app's pulls are packed by Rust. */
export const pack = (header: Omit<PullHeader, "arrays">, data: Record<string, number[]>): ArrayBuffer => {
  let offset = 0;
  const arrays = Object.entries(data).map(([name, values]) => {
    const packed = { name, offset, len: values.length };
    offset += values.length;
    return packed;
  });
  const json = new TextEncoder().encode(JSON.stringify({ ...header, arrays }));
  const start = Math.ceil((4 + json.length) / 8) * 8;
  const buffer = new ArrayBuffer(start + offset * 8);
  new DataView(buffer).setUint32(0, json.length, true);
  new Uint8Array(buffer, 4).set(json);
  new Float64Array(buffer, start).set(Object.values(data).flat());
  return buffer;
};
