/* c_locale.h (private): numbers with '.' whatever the locale of the process is. */
#ifndef DPB_C_LOCALE_H
#define DPB_C_LOCALE_H

#include <locale.h>

/* The "C" locale, made once and never freed; (locale_t)0 when out of memory. */
locale_t dpb_c_locale(void);

/* Switch the calling thread to "C" and give the locale to return to. */
locale_t dpb_c_locale_enter(void);
void dpb_c_locale_leave(locale_t before);

#endif
