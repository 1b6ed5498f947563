/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The network interface of libucclep: the C ABI of a transport that is not built in.
 *
 * A plugin for NAME is libucclep_transport_NAME.so. It exports ucclEpTransportPlugin(), which returns a table of
 * functions. The library opens it when UCCLEP_TRANSPORT or the communicator's config is NAME or NAME:ARGUMENT. The
 * header compiles as C99..C23 and as C++11..C++23. UCCLEP_TRANSPORT_ABI is the version of every struct and every
 * meaning here: any change raises it.
 *
 * Endpoint. A proxy thread opens one endpoint for each NIC that it uses. Only one thread at a time uses an endpoint;
 * different endpoints are independent and may be used at the same time. An endpoint makes progress inside calls on it,
 * above all in poll: a plugin needs no thread.
 *
 * Connection. An endpoint numbers its peers 0 to peers - 1. One of them may be the endpoint itself. The library sends
 * the endpoint's address to every peer by other means, and both sides call connect. Its argument `self` is the number
 * under which the peer knows this endpoint. connect does not wait for the other side. Until both sides have connected,
 * operations may stay unfinished.
 *
 * Operations. A write copies bytes of a local region into a remote one. With UCCLEP_OPERATION_IMM the receiver's poll
 * reports 32 bits once the CPU can read those bytes there (GPU memory: once the endpoint's flush read has completed). A
 * write of 0 bytes needs no region. A read copies bytes of a remote region into a local one. The order of two
 * operations is undefined unless `ordered` is 1, and an arrival may be reported more than once. The caller chooses
 * peers, cookies and immediates freely; a peer number is less than `peers`.
 *
 * Completions. Every operation that post accepted ends in exactly one completion: DONE or ERROR. After the DONE of a
 * write the source may be changed; the receiver may not have seen the bytes yet. After the DONE of a read the bytes are
 * in the local region. No operation stays unfinished for longer than timeout_ms after its connection last completed
 * one. The first failure breaks the connection. An ERROR of its own (operation NONE) reports that once, and all
 * operations, later ones too, end in ERROR until disconnect and connect. An ERROR with operation NONE and an unknown
 * peer means that the whole endpoint is lost.
 *
 * Slow receivers. Up to `receives` arrivals wait for poll. Further ones are held back at the senders, where operations
 * stay unfinished. Nothing is lost.
 *
 * Errors. Setup functions return a code and write an error message. post and poll never fail: they report a wrong
 * operation or connection as a completion. A function catches its own exceptions, and neither exits nor aborts. post
 * and poll allocate nothing.
 */
#ifndef UCCLEP_TRANSPORT_H_
#define UCCLEP_TRANSPORT_H_

#include <ucclep/ucclep.h>

/** Version of the structs and meanings of this header; any change raises it. */
#define UCCLEP_TRANSPORT_ABI 3
/** The only symbol that a plugin must export. Its type is ucclEpTransportEntry_t. */
#define UCCLEP_TRANSPORT_ENTRY "ucclEpTransportPlugin"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Memory ---- */

/** Kinds of memory, as bits of ucclEpTransportTraits_t.memory. */
enum {
  UCCLEP_MEMORY_HOST = 1,  /**< `data` is host memory */
  UCCLEP_MEMORY_CUDA = 2,  /**< `data` is an address of CUDA device `device` */
  UCCLEP_MEMORY_HIP = 4,   /**< `data` is an address of HIP device `device` */
  UCCLEP_MEMORY_DMABUF = 8 /**< `fd` is a dma-buf, and `data` the device address of its byte `fd_offset` */
};

/** Memory to register. */
typedef struct {
  uint32_t kind;  /**< one UCCLEP_MEMORY_* */
  int32_t device; /**< GPU memory: index of the device */
  void* data;     /**< the first byte */
  uint64_t bytes; /**< size of the region */
  /** Host memory: a descriptor that other processes can map (a sealed memfd), or -1. The caller still owns it */
  int32_t fd;
  uint64_t fd_offset; /**< where `data` begins in fd */
} ucclEpTransportMemory_t;

/** The key with which a peer reaches a region. The library copies it unchanged. */
typedef struct {
  unsigned char bytes[64]; /**< only the transport interprets them */
} ucclEpTransportKey_t;

/* ---- Operations and completions ---- */

/** @{ Sentinel values: "none" and "unknown". */
#define UCCLEP_NO_REGION 0xffffffffu
#define UCCLEP_UNKNOWN_PEER 0xffffffffu
#define UCCLEP_UNKNOWN_LENGTH 0xffffffffffffffffull
/** @} */

/** Kinds of operations. */
enum { UCCLEP_OPERATION_NONE = 0, UCCLEP_OPERATION_WRITE = 1, UCCLEP_OPERATION_READ = 2 };
/** Flags of operations. */
enum {
  UCCLEP_OPERATION_IMM = 1, /**< a write: the receiver's poll reports `imm` */
  UCCLEP_OPERATION_INLINE =
      2 /**< a write of at most max_inline bytes of host memory: the CPU may copy them to the NIC */
};

/** One operation of a chain that post starts. */
typedef struct {
  uint32_t kind;                        /**< UCCLEP_OPERATION_WRITE or _READ */
  uint32_t flags;                       /**< UCCLEP_OPERATION_* bits */
  uint32_t local_region, remote_region; /**< from register_region and import_region; UCCLEP_NO_REGION for 0 bytes */
  uint64_t local_offset, remote_offset, bytes; /**< offsets in the regions, and size; a write may have 0 bytes */
  uint64_t cookie;                             /**< chosen by the caller; the completion returns it */
  uint32_t imm;                                /**< immediate data, with UCCLEP_OPERATION_IMM */
} ucclEpTransportOperation_t;

/** Kinds of completions. */
enum { UCCLEP_COMPLETION_DONE = 1, UCCLEP_COMPLETION_ARRIVAL = 2, UCCLEP_COMPLETION_ERROR = 3 };

/** A report of poll. A field whose comment names kinds is set in completions of these kinds only. */
typedef struct {
  uint32_t kind;      /**< UCCLEP_COMPLETION_* */
  uint32_t peer;      /**< ARRIVAL: UCCLEP_UNKNOWN_PEER unless the transport reports sources */
  uint64_t bytes;     /**< size of the operation; ARRIVAL: UCCLEP_UNKNOWN_LENGTH unless the transport reports lengths */
  uint64_t cookie;    /**< DONE, ERROR */
  uint32_t imm;       /**< ARRIVAL */
  uint32_t operation; /**< DONE, ERROR: kind of the operation. ERROR: NONE when the connection itself was lost */
  ucclEpResult_t code; /**< ERROR: the reason; else ucclEpSuccess */
  const char* words;   /**< ERROR: an error message that quotes the provider; valid until the next call */
} ucclEpTransportCompletion_t;

/* ---- Endpoints ---- */

/** Settings of an endpoint. */
typedef struct {
  const char* nic;     /**< NULL or empty: the transport chooses */
  uint32_t peers;      /**< number of connections, the one to itself included */
  uint32_t sends;      /**< wanted number of unfinished operations, over all peers */
  uint32_t receives;   /**< wanted number of arrivals that wait for poll, over all peers */
  uint32_t timeout_ms; /**< limit of an unfinished operation: see Completions above */
  uint32_t memory;     /**< bits of UCCLEP_MEMORY_* that will be registered, if possible; 0: host memory */
} ucclEpTransportConfig_t;

/** Capabilities of an open endpoint. */
typedef struct {
  uint32_t memory;          /**< bits of UCCLEP_MEMORY_* that can be registered */
  uint32_t ordered;         /**< 1: a connection's writes and immediates become visible in the order of posting */
  uint32_t imm_bits;        /**< width of immediate data, at least 32 */
  uint32_t posted_receives; /**< 1: each arrival uses up a posted receive; the transport posts them */
  uint32_t reports_source;  /**< 1: ARRIVAL reports its peer */
  uint32_t reports_length;  /**< 1: ARRIVAL reports its bytes */
  uint32_t max_inline;      /**< largest inline write, in bytes */
  uint32_t sends, receives; /**< granted numbers; post accepts at most `sends` unfinished operations */
  uint64_t max_message;     /**< largest operation, in bytes */
  uint64_t max_bytes; /**< most bytes in flight that the NIC tolerates, 0: any. The caller observes it; post does not */
} ucclEpTransportTraits_t;

/** The reason why a setup function failed. */
typedef struct {
  char text[256]; /**< an error message, NUL-terminated */
} ucclEpTransportError_t;

typedef struct ucclEpTransportEndpoint* ucclEpTransportEndpoint_t; /**< defined by the plugin */

/** The functions of a plugin; all are required. Those that return a code may write `why` if the code is not success. */
typedef struct {
  uint32_t abi;     /**< UCCLEP_TRANSPORT_ABI of the header that the plugin was built with; always the first field */
  uint32_t size;    /**< sizeof(ucclEpTransportPlugin_t) */
  const char* name; /**< for error messages */

  /** Opens an endpoint. argument is the text after "NAME:", or "". */
  ucclEpResult_t (*open)(const char* argument, const ucclEpTransportConfig_t* config,
                         ucclEpTransportEndpoint_t* endpoint, ucclEpTransportError_t* why);
  /** Closes the endpoint. Unfinished operations end without a completion. Afterwards it touches no memory of the
   * caller. */
  void (*close)(ucclEpTransportEndpoint_t endpoint);
  /** Reports the capabilities of the open endpoint. They stay the same until it is closed. */
  void (*traits)(ucclEpTransportEndpoint_t endpoint, ucclEpTransportTraits_t* traits);

  /** Writes the endpoint's address. *length is the room for it on entry, and its size on return. If the room is too
     small, *length becomes the size needed and the result is ucclEpInvalidArgument. */
  ucclEpResult_t (*address)(ucclEpTransportEndpoint_t endpoint, void* address, size_t* length,
                            ucclEpTransportError_t* why);
  /** Connects to a peer by its address. Returns ucclEpInvalidArgument if the bytes are not an address of this
     transport, or come from another version of it. */
  ucclEpResult_t (*connect)(ucclEpTransportEndpoint_t endpoint, uint32_t peer, uint32_t self, const void* address,
                            size_t length, ucclEpTransportError_t* why);
  /** Ends a connection. The peer's remote regions become invalid too. Afterwards no completion of its operations is
     reported. If the transport can, it notifies the peer by an ERROR, even if the peer sends nothing, because the peer
     may be waiting for writes. */
  void (*disconnect)(ucclEpTransportEndpoint_t endpoint, uint32_t peer);

  /** Allows connected peers to access memory. They import the key. */
  ucclEpResult_t (*register_region)(ucclEpTransportEndpoint_t endpoint, const ucclEpTransportMemory_t* memory,
                                    uint32_t* region, ucclEpTransportKey_t* key, ucclEpTransportError_t* why);
  /** Ends a registration. No operation may use the region any more. A peer that uses it gets an ERROR if its NIC
     detects that. */
  ucclEpResult_t (*deregister_region)(ucclEpTransportEndpoint_t endpoint, uint32_t region, ucclEpTransportError_t* why);
  /** Imports a region of a connected peer, for operations to that peer. */
  ucclEpResult_t (*import_region)(ucclEpTransportEndpoint_t endpoint, uint32_t peer, const ucclEpTransportKey_t* key,
                                  uint32_t* remote_region, ucclEpTransportError_t* why);
  /** Releases a region of import_region. */
  void (*release_region)(ucclEpTransportEndpoint_t endpoint, uint32_t remote_region);

  /** Starts a chain of operations for one peer, together at the NIC. Returns how many it accepted, from the first on.
   */
  uint32_t (*post)(ucclEpTransportEndpoint_t endpoint, uint32_t peer, const ucclEpTransportOperation_t* operations,
                   uint32_t count);
  /** Makes progress and reports completions. It never waits. Returns how many completions it wrote. */
  uint32_t (*poll)(ucclEpTransportEndpoint_t endpoint, ucclEpTransportCompletion_t* completions, uint32_t count);
} ucclEpTransportPlugin_t;

/** The function that a plugin exports. The plugin owns the table, which never changes or moves. */
typedef const ucclEpTransportPlugin_t* (*ucclEpTransportEntry_t)(void);

#ifdef __cplusplus
}
#endif

#endif /* UCCLEP_TRANSPORT_H_ */
