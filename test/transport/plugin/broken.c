/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins that do not work, each in the way that its definition says. */
#include <ucclep/transport.h>

#if defined(BROKEN_NO_ENTRY)
int ucclep_nothing_here = 1;
#else
static ucclEpResult_t open_nothing(const char* argument, const ucclEpTransportConfig_t* config,
                                   ucclEpTransportEndpoint_t* endpoint, ucclEpTransportError_t* why) {
  (void)argument, (void)config, (void)endpoint, (void)why;
  return ucclEpSystemError;
}

static ucclEpTransportPlugin_t plugin;

const ucclEpTransportPlugin_t* ucclEpTransportPlugin(void) {
  plugin.abi = UCCLEP_TRANSPORT_ABI;
  plugin.size = sizeof(plugin);
  plugin.name = "broken";
  plugin.open = open_nothing;
#if defined(BROKEN_ABI)
  plugin.abi -= 1; /* built with the header of the version before */
#elif defined(BROKEN_NULL)
  return NULL;
#endif
  return &plugin;
}
#endif
