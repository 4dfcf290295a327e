/* dpb_comma_locale.h (tests of any room): a locale with a decimal comma for tests, made where the
 * system has none. */
#ifndef DPB_COMMA_LOCALE_H
#define DPB_COMMA_LOCALE_H

#include <stdbool.h>

/* Switch to de_DE.UTF-8, compiled by localedef into a temporary folder; false where that cannot be
 * done. Leave with comma_locale_leave(). */
bool comma_locale_enter(void);
void comma_locale_leave(void);

#endif
