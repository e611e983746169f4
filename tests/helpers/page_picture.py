"""What can be seen in a picture of a page, also while the page goes on to replace it."""

from __future__ import annotations

from playwright.sync_api import Locator

__all__ = ["count_colours", "true_width"]

# Waits for a picture. One whose source is replaced meanwhile refuses to be decoded; then the new one counts.
_DECODE = """async (image) => {
  for (;;) {
    const source = image.src;
    try {
      await image.decode();
      break;
    } catch (error) {
      if (image.src === source) throw error;
    }
  }
  %s
}"""
# A few pixels are enough, and do not keep a page that is measured from its work.
_COUNT = """
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 100;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(context.getImageData(0, 0, 100, 100).data.buffer)).size;
"""


def count_colours(picture: Locator) -> int:
    """Return how many colours a sample of its pixels has. Raises playwright's Error for a broken picture."""
    colours: int = picture.evaluate(_DECODE % _COUNT)
    return colours


def true_width(picture: Locator) -> int:
    """Return how wide it is in its own pixels. Raises playwright's Error for a broken picture."""
    width: int = picture.evaluate(_DECODE % "return image.naturalWidth;")
    return width
