/** A drawn picture in place of a photo, as a JPEG. */
export const picture = (seed: number): Promise<ArrayBuffer> => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [224, 224];
  const context = canvas.getContext("2d")!;
  context.fillStyle = `hsl(${(seed * 67) % 360} 32% 62%)`;
  context.fillRect(0, 0, 224, 224);
  context.fillStyle = `hsl(${(seed * 67 + 40) % 360} 38% 40%)`;
  context.beginPath();
  context.arc(112, 120, 44 + (seed % 5) * 7, 0, 7);
  context.fill();
  return new Promise((resolve) => canvas.toBlob((blob) => void blob!.arrayBuffer().then(resolve), "image/jpeg"));
};
