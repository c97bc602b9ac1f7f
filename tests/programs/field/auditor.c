/* An auditor of the dynamic loader, rtld-audit(7), that only exists. Built as a library. */
unsigned la_version(unsigned version) { return version; }
