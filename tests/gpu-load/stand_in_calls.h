// What the runtime takes from the driver.
#pragma once

// A device's attribute by its number, which is the same in both.
bool attribute_of(int *value, int attribute);
// A function of the driver, or null.
void *driver_function(const char *name);
