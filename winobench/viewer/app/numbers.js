// What several pages show of runs and their numbers.

import { count, html, number, percent, words } from './base.js'

// Kinds of tasks whose numbers are proportions, which the pages show in percent.
export const isShare = kind => ['answers', 'text', 'other'].includes(kind)

export const numberText = (value, isPercent) => (value === null || value === undefined ? '–' : isPercent ? percent(value) : number(value))

export const fewMark = entry => (entry.too_few ? ', n too small' : '')

export const intervalText = (entry, isPercent) => `${numberText(entry.low, isPercent)} to ${numberText(entry.high, isPercent)}${fewMark(entry)}`

export function NumberText({ entry, isPercent }) {
  return html`<b>${numberText(entry.value, isPercent)}</b> <small>${intervalText(entry, isPercent)}</small>`
}

export const metricText = ({ task, label, metric }) => `${label ?? task} ${words(metric)}`

export const statusText = ({ done, total, unit }) => `${count(done)} of ${count(total)} ${unit ?? ''}`.trim()

// A row of results.json: its group and its metric.
export function rowName(name) {
  const slash = name.lastIndexOf('/')
  return slash < 0 ? { group: '', metric: name } : { group: name.slice(0, slash), metric: name.slice(slash + 1) }
}

// A run's colour in tables and plots that are made here.
export function Swatch({ run }) {
  return html`<svg class=${`swatch run-${run % 7}`} viewBox="-5 -5 10 10" width="12" height="12" aria-hidden="true"><circle r="4" /></svg>`
}
