/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * What a network is to libucclep, and the C ABI of a transport that is not built in.
 *
 * A plugin for NAME is libucclep_transport_NAME.so. It exports ucclEpTransportPlugin(), which returns a table of
 * functions; the library opens it when UCCLEP_TRANSPORT or the communicator's config says NAME or NAME:ARGUMENT.
 * C99..C23 and C++11..C++23. Every struct and every meaning here belongs to UCCLEP_TRANSPORT_ABI: any change raises it.
 *
 * Endpoint. A proxy thread opens one endpoint per NIC that it uses. An endpoint is used by one thread at a time;
 * different endpoints are independent and may be used at the same time. Everything makes progress inside calls on the
 * endpoint, poll above all: a plugin needs no thread.
 *
 * Connection. An endpoint numbers its peers 0 to peers - 1; one of them may be the endpoint itself. Its address is
 * handed to every peer by other means, and both sides connect: `self` is the number under which the peer knows this
 * endpoint. connect does not wait for the other side. Until both have connected, operations may stay unfinished.
 *
 * Operations. A write puts bytes of a local region into a remote one, and with UCCLEP_OPERATION_IMM hands 32 bits to
 * the receiver's poll once those bytes can be read there by the CPU (GPU memory: once the endpoint's flush read has
 * completed). A write of 0 bytes needs no region. A read gets bytes of a remote region. Nothing is promised of the
 * order of two operations unless `ordered` says so, and an arrival may be reported more than once. Peers, cookies and
 * immediates are the caller's to choose; a peer number is less than `peers`.
 *
 * Completions. Every operation that post took ends in exactly one completion: DONE (the source may be changed, which
 * does not say that the receiver has seen anything; of a read: the bytes are here) or ERROR. None stays unfinished for
 * longer than timeout_ms after its connection last completed one. The first failure breaks the connection: that is
 * reported once by an ERROR of its own (operation NONE), and all operations, the later ones too, end in ERROR until
 * disconnect and connect. An ERROR of operation NONE and an unknown peer means that the whole endpoint is lost.
 *
 * Slow receivers. What has arrived waits for poll, up to `receives` of it. More is held back at the senders, where
 * operations stay unfinished; nothing is lost.
 *
 * Errors. Setup functions return a code and write an error message. post and poll never fail: what is wrong with an
 * operation or a connection is a completion. A function catches its own exceptions, and neither exits nor aborts. post
 * and poll allocate nothing.
 */
#ifndef UCCLEP_TRANSPORT_H_
#define UCCLEP_TRANSPORT_H_

#include <ucclep/ucclep.h>

/** Of the structs and meanings of this header; any change raises it. */
#define UCCLEP_TRANSPORT_ABI 3
/** The one symbol of a plugin, of type ucclEpTransportEntry_t. */
#define UCCLEP_TRANSPORT_ENTRY "ucclEpTransportPlugin"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Memory ---- */

/** Kinds of memory, as bits of ucclEpTransportTraits_t.memory. */
enum {
  UCCLEP_MEMORY_HOST = 1,  /**< `data` is host memory */
  UCCLEP_MEMORY_CUDA = 2,  /**< `data` is an address of CUDA device `device` */
  UCCLEP_MEMORY_HIP = 4,   /**< the same of a HIP device */
  UCCLEP_MEMORY_DMABUF = 8 /**< `fd` is a dma-buf, `data` the device address of its byte `fd_offset` */
};

/** Memory to be registered. */
typedef struct {
  uint32_t kind;      /**< one UCCLEP_MEMORY_* */
  int32_t device;     /**< GPU memory: which device */
  void* data;         /**< the first byte */
  uint64_t bytes;     /**< of the region */
  int32_t fd;         /**< host memory: what other processes could map (a sealed memfd), else -1; stays the caller's */
  uint64_t fd_offset; /**< where `data` begins in fd */
} ucclEpTransportMemory_t;

/** What a peer needs to reach a region: the transport's own bytes, copied as they are. */
typedef struct {
  unsigned char bytes[64]; /**< the transport's own */
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
  UCCLEP_OPERATION_IMM = 1,   /**< a write: `imm` is handed to the receiver */
  UCCLEP_OPERATION_INLINE = 2 /**< a write of at most max_inline bytes of host memory: the CPU may hand them over */
};

/** One operation of a chain that post begins. */
typedef struct {
  uint32_t kind;                               /**< UCCLEP_OPERATION_WRITE or _READ */
  uint32_t flags;                              /**< UCCLEP_OPERATION_* bits */
  uint32_t local_region, remote_region;        /**< of register_region and import_region; UCCLEP_NO_REGION: 0 bytes */
  uint64_t local_offset, remote_offset, bytes; /**< in the regions, and how many; 0 is fine for a write */
  uint64_t cookie;                             /**< the caller's; comes back with the completion */
  uint32_t imm;                                /**< with UCCLEP_OPERATION_IMM */
} ucclEpTransportOperation_t;

/** Kinds of completions. */
enum { UCCLEP_COMPLETION_DONE = 1, UCCLEP_COMPLETION_ARRIVAL = 2, UCCLEP_COMPLETION_ERROR = 3 };

/** What poll reports. Fields that are said to be of some kinds only are not set in others. */
typedef struct {
  uint32_t kind;       /**< UCCLEP_COMPLETION_* */
  uint32_t peer;       /**< ARRIVAL: UCCLEP_UNKNOWN_PEER unless the transport reports sources */
  uint64_t bytes;      /**< of the operation; ARRIVAL: UCCLEP_UNKNOWN_LENGTH unless the transport reports lengths */
  uint64_t cookie;     /**< DONE, ERROR */
  uint32_t imm;        /**< ARRIVAL */
  uint32_t operation;  /**< DONE, ERROR: the kind of it. ERROR: NONE when the connection itself was lost */
  ucclEpResult_t code; /**< ERROR; ucclEpSuccess otherwise */
  const char* words;   /**< ERROR: an error message with the provider's own words; valid until the next call */
} ucclEpTransportCompletion_t;

/* ---- Endpoints ---- */

/** What an endpoint is to be. */
typedef struct {
  const char* nic;     /**< NULL or empty: the transport's own choice */
  uint32_t peers;      /**< connections, the one to itself included */
  uint32_t sends;      /**< operations that are to be unfinished at once, over all peers */
  uint32_t receives;   /**< arrivals that are to wait for poll, over all peers */
  uint32_t timeout_ms; /**< see Completions above */
  uint32_t memory;     /**< bits of UCCLEP_MEMORY_* that are to be registered, if possible; 0: host memory */
} ucclEpTransportConfig_t;

/** What an open endpoint can do. */
typedef struct {
  uint32_t memory;          /**< bits of UCCLEP_MEMORY_* that can be registered */
  uint32_t ordered;         /**< 1: a connection's writes and immediates become visible in the order of posting */
  uint32_t imm_bits;        /**< at least 32 */
  uint32_t posted_receives; /**< 1: arrivals use up receives; the transport posts them */
  uint32_t reports_source;  /**< 1: ARRIVAL has its peer */
  uint32_t reports_length;  /**< 1: ARRIVAL has its bytes */
  uint32_t max_inline;      /**< bytes */
  uint32_t sends, receives; /**< as granted; post takes no more than `sends` that are unfinished */
  uint64_t max_message;     /**< bytes of one operation */
  uint64_t max_bytes;       /**< bytes that the NIC bears in flight, 0: any. The caller keeps to it, post does not */
} ucclEpTransportTraits_t;

/** Why a setup function failed. */
typedef struct {
  char text[256]; /**< an error message, ended by NUL */
} ucclEpTransportError_t;

typedef struct ucclEpTransportEndpoint* ucclEpTransportEndpoint_t; /**< the plugin's own */

/** The functions of a plugin; all are required. Those that return a code may write `why` when it is not success. */
typedef struct {
  uint32_t abi;     /**< UCCLEP_TRANSPORT_ABI of the header that the plugin was built with; stays first */
  uint32_t size;    /**< sizeof(ucclEpTransportPlugin_t) */
  const char* name; /**< for error messages */

  /** argument: what followed "NAME:", or "". */
  ucclEpResult_t (*open)(const char* argument, const ucclEpTransportConfig_t* config,
                         ucclEpTransportEndpoint_t* endpoint, ucclEpTransportError_t* why);
  /** Ends what is unfinished without a completion, and touches no memory of the caller's afterwards. */
  void (*close)(ucclEpTransportEndpoint_t endpoint);
  /** Fills what the open endpoint can do; the same until it is closed. */
  void (*traits)(ucclEpTransportEndpoint_t endpoint, ucclEpTransportTraits_t* traits);

  /** *length: room for the address in, its bytes out; ucclEpInvalidArgument with *length = what is needed. */
  ucclEpResult_t (*address)(ucclEpTransportEndpoint_t endpoint, void* address, size_t* length,
                            ucclEpTransportError_t* why);
  /** Bytes that are no address of this transport, or are of another version of it, are ucclEpInvalidArgument. */
  ucclEpResult_t (*connect)(ucclEpTransportEndpoint_t endpoint, uint32_t peer, uint32_t self, const void* address,
                            size_t length, ucclEpTransportError_t* why);
  /** Remote regions of the peer are gone too. No completion of its operations is reported afterwards. If the transport
     can, it tells the peer by an ERROR, even one that sends nothing: it may be waiting for writes. */
  void (*disconnect)(ucclEpTransportEndpoint_t endpoint, uint32_t peer);

  /** Makes memory reachable for connected peers, by the key that they import. */
  ucclEpResult_t (*register_region)(ucclEpTransportEndpoint_t endpoint, const ucclEpTransportMemory_t* memory,
                                    uint32_t* region, ucclEpTransportKey_t* key, ucclEpTransportError_t* why);
  /** Nobody may use the region any more. A peer that uses it gets an ERROR if its NIC notices. */
  ucclEpResult_t (*deregister_region)(ucclEpTransportEndpoint_t endpoint, uint32_t region, ucclEpTransportError_t* why);
  /** A region of a connected peer, to be named in operations to that peer. */
  ucclEpResult_t (*import_region)(ucclEpTransportEndpoint_t endpoint, uint32_t peer, const ucclEpTransportKey_t* key,
                                  uint32_t* remote_region, ucclEpTransportError_t* why);
  /** Takes back what import_region gave. */
  void (*release_region)(ucclEpTransportEndpoint_t endpoint, uint32_t remote_region);

  /** A chain of operations for one peer, begun together at the NIC. Returns how many were taken, from the first on. */
  uint32_t (*post)(ucclEpTransportEndpoint_t endpoint, uint32_t peer, const ucclEpTransportOperation_t* operations,
                   uint32_t count);
  /** Never waits. Returns how many completions it wrote. */
  uint32_t (*poll)(ucclEpTransportEndpoint_t endpoint, ucclEpTransportCompletion_t* completions, uint32_t count);
} ucclEpTransportPlugin_t;

/** The function that a plugin exports; the table is the plugin's, for ever. */
typedef const ucclEpTransportPlugin_t* (*ucclEpTransportEntry_t)(void);

#ifdef __cplusplus
}
#endif

#endif /* UCCLEP_TRANSPORT_H_ */
