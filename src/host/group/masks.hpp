// SPDX-License-Identifier: Apache-2.0
// What the host knows of the masks of a group (masks.hpp of the device): who was masked, and whether this rank was.
#pragma once
#include <memory>
#include <string>

#include "device/device.hpp"
#include "ucclep/device/layout/masks.hpp"

struct ucclEpComm;
struct ucclEpGroup;

namespace ucclep {

struct MaskWords;

std::shared_ptr<MaskWords> make_mask_words(Device& device);

// What a new group's GroupMasks and RankMasks begin with.
std::string mask_image(const ucclEpGroup& group);

// A rank has died. True if that ends no group of this communicator: all of them mask it.
bool mask_dead(ucclEpComm& comm, int rank, const std::string& message);

// Of a group with masks, from any thread: the rank is lost to it, as the message says, and is masked. gone: nothing
// leads there any more.
void mask_lost(ucclEpGroup& group, int rank, bool gone, const std::string& message);

// The two parts of that. The record comes first, and without comm.groups_mutex; the kernels are notified under it.
void note_masked(ucclEpComm& comm, const char* operation, const char* phase, int rank, const std::string& message);
void publish_lost(const ucclEpGroup& group, int rank, bool gone);

// Makes the kernels of all groups leave: the communicator has ended.
void stop_kernels(ucclEpComm& comm);

// Of a group with masks: its kernels have masked the rank.
bool is_masked(const ucclEpGroup& group, uint32_t rank);

// Of a group with masks: a rank is masked, or has gone.
bool has_masked(const ucclEpGroup& group);

// Error(ucclEpRemoteError) once a peer has masked this rank, until ucclEpMaskClear.
void check_not_evicted(const ucclEpGroup& group);

}  // namespace ucclep
