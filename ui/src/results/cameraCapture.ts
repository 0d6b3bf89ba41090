// The computer's camera, for a picture to try.
import { t } from "../strings/t";


/** Why the camera did not open, and what to do. */
export const cameraProblem = (error: unknown): string => {
  const name = error instanceof Error ? error.name : "";
  if (name === "NotAllowedError") return t("Ebb has no permission to use the camera. Allow access in System Settings > Privacy & Security > Camera.");
  if (name === "NotFoundError") return t("The camera was disconnected.");
  if (name === "NotReadableError") return t("Another app uses the camera. Close that app, then try again.");
  return t("The camera did not open.");
};

/** What the video shows, as a JPEG; `null` before its first picture. */
export const takePicture = async (video: HTMLVideoElement): Promise<ArrayBuffer | null> => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  if (canvas.width === 0) return null;
  canvas.getContext("2d")?.drawImage(video, 0, 0);
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.92));
  return blob?.arrayBuffer() ?? null;
};
