/* svg_inline.h (private): gnuplot's SVG made fit to stand inside an HTML page. */
#ifndef DPB_SVG_INLINE_H
#define DPB_SVG_INLINE_H

#include "dpb_str.h"

/* Append the <svg> element of `svg`. Names of elements get `number` in front, since a page may hold
 * several plots; the white ground is left out and black becomes the colour of the page's text, so
 * that the plot is readable on a light and on a dark page. */
void dpb_svg_inline(const char *svg, int number, struct dpb_str *out);

#endif
