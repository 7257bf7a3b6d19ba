//! Writes of a volume: in place, or redirected.

use super::Volume;
use super::plan::{MapPlan, Plan};
use crate::core::count;
use crate::disk::{DiskOp, PageBuf, start};
use crate::error::{Error, Result};
use crate::units::Seq;
use std::future::poll_fn;
use std::sync::Arc;

impl Volume {
    /// Writes `buf[..len]`. The reference is dropped before this returns, so that the caller can reuse the buffer.
    pub async fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let (mut failed_node, mut tries) = (None, 0);
        loop {
            match poll_fn(|cx| self.plan(cx, offset, u64::from(len))).await? {
                Plan::InPlace { op, segments } => {
                    count(&self.core.counters.writes_in_place);
                    let places = segments.clone();
                    let outcome = start(&*self.core.disks, DiskOp::Write { segments, buf: buf.clone() }).await;
                    self.state.lock().finish(op);
                    match outcome {
                        Err(error) if error.is_no_room() => {
                            self.core.note_no_room(error, places);
                            self.no_room(error, &mut tries).await?;
                        }
                        outcome => {
                            self.wrote(&places);
                            return outcome.map(drop).map_err(|error| self.core.journal.answer(error.into()));
                        }
                    }
                }
                Plan::Map(plan) => {
                    count(&self.core.counters.writes_redirected);
                    if plan.replaces > 0 {
                        count(&self.core.counters.writes_again);
                    }
                    let is_news = self.core.no_space_timeout.is_tried() && self.takes_unreserved(&plan);
                    if plan.wants_metadata {
                        self.core.grow_ahead();
                    }
                    if plan.wants_fill {
                        self.request_filling();
                    }
                    match self.execute(offset, len, buf.clone(), plan).await {
                        Err(Error::NoRoom(error)) => self.no_room(error, &mut tries).await?,
                        outcome => {
                            if is_news && outcome.is_ok() {
                                self.found_room();
                            }
                            return outcome.map(drop);
                        }
                    }
                }
                Plan::Load(node, level) => self.core.load_or_retry(node, level, &mut failed_node).await?,
                other => self.wait_for(other).await?,
            }
        }
    }

    /// Carries out the plan, and ends the request. Returns the record's number, if there is a record.
    pub(super) async fn execute(&self, offset: u64, len: u32, buf: Arc<PageBuf>, plan: MapPlan) -> Result<Option<Seq>> {
        let (op, replaces) = (plan.op, plan.replaces);
        let outcome = self.write_mapped(offset, len, buf, plan).await;
        self.core.meta.lock().write_done();
        let in_pool = {
            let mut state = self.state.lock();
            state.finish(op);
            !state.meta.attributes.pool.is_empty()
        };
        if in_pool && (replaces > 0 || outcome.is_err()) {
            // It subtracted more from its pool than it uses: other writes may wait for the rest.
            self.core.space_event.notify();
        }
        outcome
    }

    pub(super) async fn wait_for(&self, plan: Plan) -> Result<()> {
        match plan {
            Plan::Marker(seq) => {
                count(&self.core.counters.waits_for_marker);
                self.core.journal.ensure_marker(seq).await?;
                self.state.lock().fresh.prune(self.core.journal.marker_durable());
                Ok(())
            }
            Plan::Admit => {
                self.core.request_checkpoint();
                self.core.journal.admit().await?;
                self.core.wait_while_too_dirty().await
            }
            Plan::Space(error) => self.make_space(error).await,
            Plan::InPlace { .. } | Plan::Map(_) | Plan::Load(..) => {
                unreachable!("these are carried out, not waited for")
            }
        }
    }
}
