// All runs, live.

import { html, link, Loaded, number, percent, useData, useEffect, useState } from '../base.js'
import * as source from '../source.js'
import { Table } from '../tables.js'

const POLL_MILLISECONDS = 2_000

export default function Runs() {
  const [tick, setTick] = useState(0)
  const state = useData(source.runs, [tick])
  const isLive = state.value?.runs.some(({ status }) => status === 'running')
  useEffect(() => {
    if (!isLive) return
    const timer = setTimeout(() => setTick(tick + 1), POLL_MILLISECONDS)
    return () => clearTimeout(timer)
  }, [isLive, tick])
  return html`<h1>Runs</h1><${Loaded} state=${state} what="the runs">${({ runs }) => html`
    <${Table} caption="Runs" name="runs" rows=${runs} rowKey=${({ slug }) => slug} columns=${COLUMNS} empty="The folders hold no run." />`}<//>`
}

const COLUMNS = [
  { key: 'label', label: 'model', cell: run => html`<a href=${link(['run', run.slug])}>${run.label}</a>` },
  { key: 'status', label: 'status', cell: said },
  { key: 'tasks', label: 'tasks', value: run => run.tasks.length, isNumber: true },
  { key: 'headline', label: 'first result', value: run => run.headline[0]?.value, cell: run => run.headline[0] && shown(run.headline[0]), isNumber: true },
  { key: 'updated', label: 'changed', value: run => run.updated },
]

function said({ status, reason, progress }) {
  if (status === 'running' && progress?.total) {
    return html`<progress max=${progress.total} value=${progress.done} aria-label="Progress" /> ${percent(progress.done / progress.total, 0)}%`
  }
  return reason ? `${status}: ${reason}` : status
}

const shown = ({ task, value, unit }) => `${task} ${unit === '%' ? `${percent(value)}%` : number(value)}`
