//! Supervisors under the determinism kit: arbitrary lives of whole runs of the presets.
//!
//! Answers are those of the scripts, unless the kit draws that they fail, are lost, late or doubled; people and programs
//! send all that supervisors understand, and what they do not, at any moment.
//!
//! Invariant: a call is made once unless its worker was lost; a task that is over stays as it is; what is paused starts
//! nothing; a closed run has nothing under way. Figures are printed, nothing is timed.

mod accepted;
mod acts;
mod blocks;
mod border_limits;
mod bounded;
mod lives;
mod nobody;
mod scenes;
mod told;
mod unanswered;
